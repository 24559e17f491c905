package client

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxRedirects      = 20
	maxRedirectLength = 2048
)

// reservedParameters are the parameters that an authorization response adds to the URI. A registered URI that contains
// one could forge a response.
var reservedParameters = []string{"code", "state", "iss", "error", "error_description", "response"}

func checkRedirects(uris []string) error {
	if len(uris) == 0 || len(uris) > maxRedirects {
		return &Refusal{Redirect: true, Field: "redirectUris", Message: "Enter 1 to 20 redirect URIs."}
	}
	for i, uri := range uris {
		if reason := refuseRedirect(uri); reason != "" {
			refusal := &Refusal{Redirect: true, Field: "redirectUris", Message: reason}
			if len(uris) > 1 {
				refusal.Nth = i + 1
			}
			return refusal
		}
	}
	return nil
}

// refuseRedirect returns why a redirect URI cannot be registered, or "" (contract, section 5; RFC 9700, section 4.1).
func refuseRedirect(uri string) string {
	if len(uri) > maxRedirectLength {
		return "A redirect URI must be at most 2,048 characters long."
	}
	for _, r := range uri {
		if r <= ' ' || r >= 0x7f || r == '\\' {
			return "A redirect URI must be printable ASCII without spaces or backslashes."
		}
	}
	parsed, err := url.Parse(uri)
	switch {
	case err != nil || !parsed.IsAbs() || parsed.Hostname() == "" || parsed.Opaque != "":
		return "A redirect URI must be absolute, such as https://app.example.org/callback."
	// This case must precede the ones that check the host.
	case parsed.User != nil || strings.Contains(parsed.Host, "@"):
		return "A redirect URI must not contain a user name or password."
	case !strings.Contains(uri, "://"+parsed.Host): // net/url has decoded percent escapes
		return "The host of a redirect URI must not contain % escapes."
	case parsed.Scheme != "https" && (parsed.Scheme != "http" || !loopback(parsed.Hostname())):
		return "A redirect URI must use https. Only localhost, 127.0.0.1 and [::1] can use http."
	case strings.Contains(uri, "#"):
		return "A redirect URI must not contain a fragment (#)."
	case strings.Contains(uri, "*"):
		return "A redirect URI must not contain a wildcard (*). Register each redirect URI."
	case !opens(parsed):
		return "The host of a redirect URI must be an IP address or a name of letters, digits, hyphens, underscores " +
			"and dots (other names in their xn-- form), with an optional port from 1 to 65535."
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "The query of the redirect URI is not valid."
	}
	for name := range query {
		if slices.Contains(reservedParameters, strings.ToLower(name)) {
			return "A redirect URI must not have a query parameter named code, state, iss, error, error_description " +
				"or response."
		}
	}
	return ""
}

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$`)
	numberPattern = regexp.MustCompile(`^([0-9]+|0[xX][0-9A-Fa-f]*)$`)
)

// opens reports whether browsers accept the host and the port. net/url accepts nearly everything.
func opens(u *url.URL) bool {
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if strings.HasPrefix(u.Host, "[") {
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is6() && address.Zone() == ""
	}
	labels := strings.Split(strings.TrimSuffix(u.Hostname(), "."), ".")
	if numberPattern.MatchString(labels[len(labels)-1]) { // browsers parse any number as an IPv4 address
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is4()
	}
	return namePattern.MatchString(u.Hostname()) && !slices.Contains(labels, "xn--")
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
