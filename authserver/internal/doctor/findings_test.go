package doctor

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func source(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	testkit.Must(t, err)
	var all strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != strings.HasSuffix(pattern, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		testkit.Must(t, err)
		all.Write(content)
	}
	return all.String()
}

// codes matches the codes in the calls that record findings, and in the tables of checks.
var codes = regexp.MustCompile(`(?m)(?:find|stop)\("(\w+)"|either\(.*"(\w+)", "(\w+)"\)|^\t\t\{.*?, "(\w+)", .*\},$`)

// Every code in the source is in the table, and every entry of the table is used, worded and tested.
func TestFindings_MatchCode(t *testing.T) {
	t.Parallel()
	code, tests := source(t, "*.go"), source(t, "*_test.go")
	var list []Finding
	readStrictly(t, findingsJSON, &list)
	table := map[string]Finding{}
	for _, f := range list {
		table[f.Code] = f
	}
	if len(table) != len(list) {
		t.Error("a code occurs twice in the table")
	}
	for _, found := range codes.FindAllStringSubmatch(code, -1) {
		for _, name := range found[1:] {
			if _, ok := table[name]; !ok && name != "" {
				t.Errorf("%s is not in the table", name)
			}
		}
	}
	if len(table) < 120 {
		t.Errorf("only %d findings", len(table))
	}
	for name, f := range table {
		if !strings.Contains(code, `"`+name+`"`) {
			t.Errorf("%s is not used", name)
		}
		if !strings.Contains(tests, `"`+name+`"`) {
			t.Errorf("no test for %s", name)
		}
		for _, sentence := range []string{f.Symptom, f.Effect, f.Remedy} {
			if sentence != "" && !strings.HasSuffix(sentence, ".") {
				t.Errorf("%s: not a sentence: %q", name, sentence)
			}
		}
		if f.Symptom == "" || (f.Verdict == OK) != (f.Effect == "" && f.Remedy == "") {
			t.Errorf("%s: warnings and failures need effect and mend, ok has neither", name)
		}
		if !slices.Contains([]Verdict{OK, Warn, Fail}, f.Verdict) {
			t.Errorf("%s: the verdict is %q", name, f.Verdict)
		}
	}
}

// readStrictly parses an embedded table, and refuses misspelled members.
func readStrictly(t *testing.T, table []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(table))
	decoder.DisallowUnknownFields()
	testkit.Must(t, decoder.Decode(into))
}

func TestProfiles_AreComplete(t *testing.T) {
	t.Parallel()
	var all []profile
	readStrictly(t, profilesJSON, &all)
	for _, p := range all {
		if p.Name == "" || p.Title == "" || p.RedirectURI == "" || p.Origin == "" {
			t.Errorf("incomplete: %+v", p)
		}
	}
}

// Findings that cannot be provoked between two programs on one machine.
func TestFind_FindingsBeyondLoopback(t *testing.T) {
	t.Parallel()
	begun := func(url string) *run {
		r, err := begin(Options{URL: url, As: "claude"})
		testkit.Must(t, err)
		return r
	}
	for code, provoke := range map[string]func(r *run){
		"names_localhost": func(r *run) { r.usable("http://localhost:8080", "authorization_servers[0]", nil) },
		"names_http":      func(r *run) { r.usable("http://api.example.org", "authorization_servers[0]", nil) },
		"not_an_address":  func(r *run) { r.usable("https://ada@api.example.org", "token_endpoint", nil) },
		"slow":            func(r *run) { r.checkTime(&response{status: 200, took: 4 * time.Second}) },
		"certificate_expires": func(r *run) {
			r.checkCertificate(&response{
				tls: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(time.Hour)}}},
			})
		},
		"no_scopes_anywhere": func(r *run) {
			r.checkResource(document{resp: &response{}, object: object{"resource": "x"}})
		},
	} {
		r := begun("https://api.example.org/mcp")
		if provoke(r); r.report.Count(OK) > 0 || r.report.Findings[len(r.report.Findings)-1].Code != code {
			t.Errorf("%s: %+v", code, r.report.Findings)
		}
	}
	r := begun("http://api.example.org/mcp")
	if r.checkURL(); len(r.report.Findings) != 1 || r.report.Findings[0].Code != "no_https" {
		t.Errorf("%+v", r.report.Findings)
	}
	if r := begun("http://10.0.0.7/mcp"); !isPrivate(r.typed.Hostname()) || !isPrivate("169.254.169.254") ||
		!isPrivate("::ffff:10.0.0.7") || !isPrivate("0.0.0.0") || isPrivate("8.8.8.8") || isPrivate("example.org") {
		t.Error("isPrivate does not distinguish private addresses")
	}
}

func TestDifference_DescribesIdentifiers(t *testing.T) {
	t.Parallel()
	for is, says := range map[string]string{
		"https://api.example.org/mcp/": "trailing slash", "http://api.example.org/mcp": "http is not https",
		"https://other.example.org/mcp": "the hosts differ", "https://api.example.org": "the paths differ",
		"https://API.example.org/mcp": "upper and lower case", "%": "must be",
	} {
		if got := difference(is, "https://api.example.org/mcp"); !strings.Contains(got, says) {
			t.Errorf("%s: %s", is, got)
		}
	}
}

func TestBegin_RefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{URL: "https://api.example.org/mcp", As: "nobody"},
		{URL: "api.example.org/mcp", As: "generic"},
		{URL: "ftp://api.example.org/mcp", As: "generic"},
		{URL: "https://ada:secret@api.example.org/mcp", As: "generic"},
		{URL: "https://api.example.org/mcp?key=1", As: "generic"},
		{URL: "https://api.example.org/mcp", As: "generic", Email: "ada@example.org"},
		{URL: "https://api.example.org/mcp", As: "generic", RedirectURI: "/callback"},
		{URL: "https://api.example.org/mcp", As: "claude", Browser: true},
	} {
		if _, err := begin(o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s %s: %v", o.As, o.URL, err)
		}
	}
}

func TestBearerChallenge_ParsesHeader(t *testing.T) {
	t.Parallel()
	parse := func(line string) map[string]string { return bearerChallenge(http.Header{"Www-Authenticate": {line}}) }
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
		if got := parse(line); got == nil || !maps.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"", "Basic realm=x", `"Bearer"`, ", ,", "=Bearer"} {
		if got := parse(line); got != nil {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestShow_HidesSecrets(t *testing.T) {
	t.Parallel()
	var s secrets
	for _, secret := range []credential.Secret{"pass word/+=", "token-1", "token-1-longer", ""} { // the last is ignored
		s.add(secret)
	}
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
