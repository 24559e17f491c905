package doctor

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func source(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatal(pattern, err)
	}
	var all strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != strings.HasSuffix(pattern, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
