package consent

import (
	"net/netip"
	"net/url"
	"strings"
)

// A Callback is the client's redirect URI, on which the answer goes back.
type Callback struct{ URI string }

// With returns the URI with the parameters (names and values in turn) appended. What the URI brings along stays byte
// for byte, and an empty value is left out. A space is %20: not every client reads a plus sign as one.
func (c Callback) With(pairs ...string) string {
	var out strings.Builder
	out.WriteString(c.URI)
	separator := "?"
	if strings.Contains(c.URI, "?") {
		separator = "&"
		if strings.HasSuffix(c.URI, "?") || strings.HasSuffix(c.URI, "&") {
			separator = ""
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		out.WriteString(separator + pairs[i] + "=" + strings.ReplaceAll(url.QueryEscape(pairs[i+1]), "+", "%20"))
		separator = "&"
	}
	return out.String()
}

// Host is where the user will be sent, as it is shown.
func (c Callback) Host() string {
	parsed, err := url.Parse(c.URI)
	if err != nil {
		return c.URI
	}
	return parsed.Host
}

// Loopback says whether the callback is on the user's own computer, where any program may be listening.
func (c Callback) Loopback() bool {
	parsed, err := url.Parse(c.URI)
	if err != nil {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	address, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || (err == nil && address.Unmap().IsLoopback())
}

// Lookalike says whether the host has a label in punycode (RFC 3492), whose letters may pass for others.
func (c Callback) Lookalike() bool {
	for _, label := range strings.Split(strings.ToLower(c.Host()), ".") {
		if strings.HasPrefix(label, "xn--") {
			return true
		}
	}
	return false
}

// FormTarget is the callback as a source of the CSP directive form-action: its origin, or its scheme alone where the
// host cannot be written there (an IPv6 address; CSP level 3, section 2.3.1).
func (c Callback) FormTarget() string {
	parsed, err := url.Parse(c.URI)
	if err != nil {
		return ""
	}
	for _, r := range parsed.Hostname() {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		default:
			return parsed.Scheme + ":"
		}
	}
	return parsed.Scheme + "://" + parsed.Host
}
