package rest

import (
	"net/http"
	"testing"
	"time"
)

func TestAnnounce_AppliesOnlyToDeprecatedOperations(t *testing.T) {
	t.Parallel()
	table := Deprecations{{
		Method: "GET",
		Path:   "/v1/things/{id}",
		Since:  time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		Sunset: time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC),
		Link:   "https://api.example.org/v1/docs#things",
	}}
	for _, c := range []struct {
		method, path string
		announced    bool
	}{
		{"GET", "/v1/things/{id}", true},
		{"HEAD", "/v1/things/{id}", true},
		{"DELETE", "/v1/things/{id}", false},
		{"GET", "/v1/things", false},
	} {
		h := http.Header{}
		table.Announce(h, c.method, c.path)
		if !c.announced {
			if len(h) != 0 {
				t.Errorf("%s %s: %v", c.method, c.path, h)
			}
			continue
		}
		if h.Get("Deprecation") != "@1798761600" || h.Get("Sunset") != "Thu, 01 Jul 2027 00:00:00 GMT" ||
			h.Get("Link") != `<https://api.example.org/v1/docs#things>; rel="deprecation"; type="text/html"` {
			t.Errorf("%s %s: %v", c.method, c.path, h)
		}
	}
}
