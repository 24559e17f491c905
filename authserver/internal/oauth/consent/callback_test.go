package consent

import (
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
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
		testkit.Must(t, err)
		query := to.Query()
		if query.Get("state") != state || query.Get("x") != "1" || query.Get("code") != "c" ||
			query.Get("iss") != "https://i.example" ||
			to.Host != "a.example" {
			t.Errorf("%q returned as %q", state, query.Get("state"))
		}
	})
}

func TestCallback_ShowsHostLoopbackAndLookalike(t *testing.T) {
	for uri, want := range map[string]struct {
		host, own string
		lookalike bool
	}{
		"https://claude.ai/api/mcp/auth_callback": {"claude.ai", "", false},
		"http://localhost:3000/cb":                {"localhost:3000", "computer", false},
		"http://127.9.9.9:3000/cb":                {"127.9.9.9:3000", "computer", false},
		"http://[::1]:3000/cb":                    {"[::1]:3000", "computer", false},
		"https://xn--pple-43d.example/cb":         {"xn--pple-43d.example", "", true},
		"https://www.XN--pple-43d.example/cb":     {"www.XN--pple-43d.example", "", true},
		"https://LOCALHOST/cb":                    {"LOCALHOST", "computer", false},
		"https://app.localhost./cb":               {"app.localhost.", "computer", false},
		"https://localhost.evil.example/cb":       {"localhost.evil.example", "", false},
		"https://a.example:8443/cb":               {"a.example:8443", "", false},
		"cursor://anysphere.cursor-mcp/cb":        {"cursor://anysphere.cursor-mcp", "device", false},
		"com.example.app:/cb":                     {"com.example.app:", "device", false},
		"http://[::1":                             {"http://[::1", "", false}, // not a URL
	} {
		c := Callback{uri}
		if c.Host() != want.host || c.OwnDevice() != want.own || c.Lookalike() != want.lookalike {
			t.Errorf("%s: %q %q %v, want %+v", uri, c.Host(), c.OwnDevice(), c.Lookalike(), want)
		}
	}
}
