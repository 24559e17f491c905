package doctor

import (
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestBearerChallenge_ParsesHeader(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]map[string]string{
		`Bearer`: {},
		`Bearer realm="a, b", resource_metadata="https://x/y?a=1,2", scope="read write"`: {
			"realm":             "a, b",
			"resource_metadata": "https://x/y?a=1,2",
			"scope":             "read write",
		},
		`bearer SCOPE=read,error=invalid_token`:                      {"scope": "read", "error": "invalid_token"},
		`Basic realm="x", Bearer scope="s"`:                          {"scope": "s"},
		`Bearer scope="a\"b"`:                                        {"scope": `a"b`},
		`Bearer scope="never closed`:                                 {"scope": "never closed"},
		`Bearer scope = "spaced" , error = "e"`:                      {"scope": "spaced", "error": "e"},
		`Negotiate, Bearer resource_metadata="m", DPoP algs="ES256"`: {"resource_metadata": "m"},
	} {
		got := bearerChallenge(http.Header{"Www-Authenticate": {line}})
		if got == nil || len(got) != len(want) {
			t.Errorf("%s: %v", line, got)
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q", line, name, got[name])
			}
		}
	}
	for _, line := range []string{"", "Basic realm=x", `"Bearer"`, ", ,", "=Bearer"} {
		if got := bearerChallenge(http.Header{"Www-Authenticate": {line}}); got != nil {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestShow_HidesSecrets(t *testing.T) {
	t.Parallel()
	var s secrets
	s.add("pass word/+=")
	s.add("token-1")
	s.add("token-1-longer")
	s.add("") // ignored
	for text, want := range map[string]string{
		"to\x00ken-\u200b1":                                "[redacted]",
		"I said pass word/+= to you":                       "I said [redacted] to you",
		"a=pass+word%2F%2B%3D&b":                           "a=[redacted]&b",
		"token-1-longer":                                   "[redacted]",
		"alm_rt_abcdef and alm_pat_x.y":                    "[redacted] and [redacted]",
		"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJ4In0.sig":         "[redacted]",
		"Authorization: Bearer abcdefghijklmnopqrstuvwxyz": "Authorization: [redacted]",
		"\x1b[31mred\x1b[0m\r\nnext\u202e":                 "[31mred[0m next",
		"\xff\xfe":                                         "",
		"Bearer realm=\"almoner\"":                         "Bearer realm=\"almoner\"",
	} {
		if got := s.show(text, 200); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	if got := s.show(strings.Repeat("ä", 300), 10); got != strings.Repeat("ä", 10)+"…" {
		t.Error(got)
	}
	if got := s.show("12345 token-1", 8); strings.Contains(got, "to") {
		t.Errorf("a part of a secret is shown: %q", got)
	}
	if got := s.address("https://x/cb?code=abc&state=def"); got != "https://x/cb?code=…&state=…" {
		t.Error(got)
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer a="b", c=d`)
	f.Fuzz(func(_ *testing.T, line string) { bearerChallenge(http.Header{"Www-Authenticate": {line}}) })
}

func FuzzShow(f *testing.F) {
	f.Add("text with a-secret-value", "a-secret-value")
	f.Fuzz(func(t *testing.T, text, secret string) {
		var s secrets
		s.add(credential.Secret(secret))
		shown := s.show(text, 1000)
		for _, r := range shown {
			if !unicode.IsPrint(r) {
				t.Errorf("%q", shown)
			}
		}
		if len(secret) >= 4 && !strings.ContainsAny(secret, " \t\n\r") && printable(secret) &&
			strings.Contains(shown, secret) && !strings.Contains("[redacted]…", secret) {
			t.Errorf("%q is in %q", secret, shown)
		}
	})
}

func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return false
		}
	}
	return true
}
