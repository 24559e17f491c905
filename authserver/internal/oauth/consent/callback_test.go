package consent

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestCallback_WithAppendsParameters(t *testing.T) {
	for uri, want := range map[string]string{
		"https://a.example/cb":           "https://a.example/cb?code=c&state=s%20%2B%26",
		"https://a.example/cb?":          "https://a.example/cb?code=c&state=s%20%2B%26",
		"https://a.example/cb?x=1+%7e":   "https://a.example/cb?x=1+%7e&code=c&state=s%20%2B%26",
		"https://a.example/cb?x=1&":      "https://a.example/cb?x=1&code=c&state=s%20%2B%26",
		"https://a.example":              "https://a.example?code=c&state=s%20%2B%26",
		"https://a.example/?a=b?c=d&a=b": "https://a.example/?a=b?c=d&a=b&code=c&state=s%20%2B%26",
	} {
		if got := (Callback{uri}).With("code", "c", "none", "", "state", "s +&"); got != want {
			t.Errorf("%s becomes %s", uri, got)
		}
	}
}

func FuzzCallbackState(f *testing.F) {
	for _, seed := range []string{"a b+c%&=;?/#\"<é>'", "\x00\xff", "", " ", "%41"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, state string) {
		to, err := url.Parse(
			Callback{"https://a.example/cb?x=1"}.With("code", "c", "state", state, "iss", "https://i.example"),
		)
		if err != nil {
			t.Fatal(err)
		}
		query := to.Query()
		if query.Get("state") != state || query.Get("x") != "1" || query.Get("code") != "c" ||
			query.Get("iss") != "https://i.example" ||
			to.Host != "a.example" {
			t.Errorf("%q returned as %q", state, query.Get("state"))
		}
	})
}

func TestCallback_DetectsLoopbackAndLookalike(t *testing.T) {
	for uri, want := range map[string][2]any{ // own, lookalike
		"https://claude.ai/api/mcp/auth_callback": {"", false},
		"http://localhost:3000/cb":                {"computer", false},
		"http://127.9.9.9:3000/cb":                {"computer", false},
		"http://[::1]:3000/cb":                    {"computer", false},
		"https://xn--pple-43d.example/cb":         {"", true},
		"https://www.XN--pple-43d.example/cb":     {"", true},
		"https://LOCALHOST/cb":                    {"computer", false},
		"https://app.localhost./cb":               {"computer", false},
		"https://localhost.evil.example/cb":       {"", false},
		"https://a.example:8443/cb":               {"", false},
		"cursor://anysphere.cursor-mcp/cb":        {"device", false},
		"com.example.app:/cb":                     {"device", false},
	} {
		c := Callback{uri}
		if c.OwnDevice() != want[0] || c.Lookalike() != want[1] {
			t.Errorf("%s: %v %v", uri, c.OwnDevice(), c.Lookalike())
		}
		if c.OwnDevice() == "device" {
			if !strings.HasPrefix(uri, c.Host()) || !strings.Contains(c.Host(), ":") {
				t.Errorf("%s: shown as %q", uri, c.Host())
			}
			continue
		}
		if c.Host() == "" || !slices.Contains(strings.Split(uri, "/"), c.Host()) {
			t.Errorf("%s: host %q", uri, c.Host())
		}
	}
}
