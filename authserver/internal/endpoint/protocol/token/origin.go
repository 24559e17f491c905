package token

import (
	"net/http"
	"net/netip"
	"strings"
)

// network returns the /24 of an IPv4 address or the /48 of an IPv6 address, or "". It shows where a request came from
// without identifying one caller.
func network(address netip.Addr) string {
	bits := 24
	if address = address.Unmap(); address.Is6() {
		bits = 48
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil || !address.IsValid() {
		return ""
	}
	return prefix.String()
}

const longestUserAgent = 60

// userAgent returns the beginning of the User-Agent, as visible ASCII text without quotation marks: pages quote it.
func userAgent(r *http.Request) string {
	visible := func(c rune) rune {
		if c >= ' ' && c <= '~' && c != '"' {
			return c
		}
		return -1
	}
	agent := strings.Map(visible, r.UserAgent())
	return strings.TrimSpace(agent[:min(len(agent), longestUserAgent)])
}
