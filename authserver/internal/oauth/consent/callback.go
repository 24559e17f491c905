package consent

import (
	"net/netip"
	"net/url"
	"strings"
)

// A Callback is the client's redirect URI, which receives the authorization response.
type Callback struct{ URI string }

// With returns the URI with the parameters (names and values in turn) appended. The URI itself stays unchanged byte for
// byte, and parameters with an empty value are left out. A space becomes %20, because not every client decodes a plus
// sign as one.
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

// Host returns the host that the user is sent to, for display. A private-use scheme precedes it, because the scheme
// selects the application.
func (c Callback) Host() string {
	parsed, err := url.Parse(c.URI)
	switch {
	case err != nil:
		return c.URI
	case !private(parsed):
		return parsed.Host
	case parsed.Host == "":
		return parsed.Scheme + ":"
	}
	return parsed.Scheme + "://" + parsed.Host
}

// A private-use scheme (RFC 8252, section 7.1) is any other than those of the web.
func private(u *url.URL) bool { return u.Scheme != "https" && u.Scheme != "http" }

// OwnDevice returns a word for the user's device if the callback leads to an application on it: "computer" for a
// loopback address, where any program may be listening, "device" for a private-use scheme, which any application may
// claim, or "" for another host.
func (c Callback) OwnDevice() string {
	parsed, err := url.Parse(c.URI)
	if err != nil {
		return ""
	}
	if private(parsed) {
		return "device"
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	address, err := netip.ParseAddr(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || (err == nil && address.Unmap().IsLoopback()) {
		return "computer"
	}
	return ""
}

// Lookalike reports whether the host has a label in punycode (RFC 3492), whose letters may imitate others.
func (c Callback) Lookalike() bool {
	for _, label := range strings.Split(strings.ToLower(c.Host()), ".") {
		if strings.HasPrefix(label, "xn--") {
			return true
		}
	}
	return false
}
