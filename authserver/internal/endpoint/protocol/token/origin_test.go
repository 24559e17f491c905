package token

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestOrigin_IsShortened(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"203.0.113.77":        "203.0.113.0/24",
		"::ffff:203.0.113.77": "203.0.113.0/24",
		"2001:db8:1:2::3":     "2001:db8:1::/48",
		"fe80::1%eth0":        "fe80::/48",
	} {
		if got := network(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := network(netip.Addr{}); got != "" {
		t.Errorf("no address: %s", got)
	}
	r := httptest.NewRequest("POST", "/", nil)
	for agent, want := range map[string]string{
		"sync/1.2 (linux)":      "sync/1.2 (linux)",
		"a\x00b\u202ec\xff":     "abc",
		strings.Repeat("x", 61): strings.Repeat("x", 60),
		"":                      "",
	} {
		r.Header.Set("User-Agent", agent)
		if got := userAgent(r); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
}
