package token

import (
	"net/http"
	"net/netip"
	"strings"
	"unicode"
)

// network returns the network of an address, which says where a request came from without naming one caller: the /24 of
// an IPv4 address, the /48 of an IPv6 address, or "".
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

// userAgent returns the beginning of the User-Agent, as visible text.
func userAgent(r *http.Request) string {
	visible := func(c rune) rune {
		if unicode.IsGraphic(c) && !unicode.Is(unicode.Bidi_Control, c) {
			return c
		}
		return -1
	}
	agent := []rune(strings.Map(visible, strings.ToValidUTF8(r.UserAgent(), "")))
	return strings.TrimSpace(string(agent[:min(len(agent), longestUserAgent)]))
}
