package browsertest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// As names a page in what its checks report: the row of a table.
func (p *Page) As(names ...any) *Page {
	named := *p
	named.name = strings.TrimSpace(fmt.Sprintln(names...))
	return &named
}

// Wants checks the status of the page, and that its text contains words.
func (p *Page) Wants(status int, words ...string) *Page {
	p.browser.t.Helper()
	var problems []string
	if p.Status != status {
		problems = append(problems, fmt.Sprintf("status %d, want %d", p.Status, status))
	}
	return p.report(append(problems, holding(false, p.Text(), "the text does not say", words)...))
}

// Says checks that the text of the page contains words.
func (p *Page) Says(words ...string) *Page {
	p.browser.t.Helper()
	return p.report(holding(false, p.Text(), "the text does not say", words))
}

// Lacks checks that the text of the page contains none of the words.
func (p *Page) Lacks(words ...string) *Page {
	p.browser.t.Helper()
	return p.report(holding(true, p.Text(), "the text says", words))
}

// Contains checks that the HTML of the page contains each part.
func (p *Page) Contains(parts ...string) *Page {
	p.browser.t.Helper()
	return p.report(holding(false, p.Body, "the HTML does not contain", parts))
}

// Omits checks that the HTML of the page contains none of the parts.
func (p *Page) Omits(parts ...string) *Page {
	p.browser.t.Helper()
	return p.report(holding(true, p.Body, "the HTML contains", parts))
}

// Times checks how often the HTML of the page contains a part.
func (p *Page) Times(want int, part string) *Page {
	p.browser.t.Helper()
	if n := strings.Count(p.Body, part); n != want {
		p.report([]string{fmt.Sprintf("the HTML contains %q %d times, want %d", part, n, want)})
	}
	return p
}

// Keeps checks values in the page's form with an action: pairs of name and value, in which a space separates the values
// of one name.
func (p *Page) Keeps(action string, pairs ...string) *Page {
	p.browser.t.Helper()
	form := p.Form(action)
	var problems []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if got := strings.Join(form[pairs[i]], " "); got != pairs[i+1] {
			problems = append(problems, fmt.Sprintf("the form has %s=%q, want %q", pairs[i], got, pairs[i+1]))
		}
	}
	return p.report(problems)
}

// Selects checks that the page has an element for each CSS selector.
func (p *Page) Selects(selectors ...string) *Page {
	p.browser.t.Helper()
	var problems []string
	for _, selector := range selectors {
		if p.document.Find(selector).Length() == 0 {
			problems = append(problems, "no element "+selector)
		}
	}
	return p.report(problems)
}

// LeadsTo checks the URL that the page redirects to: "" for a page that does not redirect.
func (p *Page) LeadsTo(location string) *Page {
	p.browser.t.Helper()
	if got := p.Location(); got != location {
		p.report([]string{fmt.Sprintf("redirects to %q, want %q", got, location)})
	}
	return p
}

// HasHeader checks that the response has a header.
func (p *Page) HasHeader(name string) *Page {
	p.browser.t.Helper()
	if p.Header.Get(name) == "" {
		p.report([]string{"there is no header " + name})
	}
	return p
}

// holding returns what is wrong with the parts that a text holds or, without held, with those that it does not hold.
func holding(held bool, text, what string, parts []string) (problems []string) {
	for _, part := range parts {
		if strings.Contains(text, part) == held || part == "" {
			problems = append(problems, fmt.Sprintf("%s %q", what, part))
		}
	}
	return problems
}

// report fails the test with what was sent, what came, what was wrong, what the server logged about the request, and
// the command that repeats the test.
func (p *Page) report(problems []string) *Page {
	p.browser.t.Helper()
	if len(problems) == 0 {
		return p
	}
	var out strings.Builder
	if p.name != "" {
		fmt.Fprintf(&out, "%s: ", p.name)
	}
	fmt.Fprintf(&out, "%s\n  sent:   %s %s", strings.Join(problems, "; "), p.sent.method, p.sent.path)
	for _, name := range slices.Sorted(maps.Keys(p.sent.form)) {
		if secretField.MatchString(name) {
			fmt.Fprintf(&out, " %s=…", name)
			continue
		}
		fmt.Fprintf(&out, " %s=%q", name, p.sent.form[name])
	}
	fmt.Fprintf(&out, "\n  came:   %d", p.Status)
	for _, name := range []string{"Location", "Content-Type", "Retry-After"} {
		if value := p.Header.Get(name); value != "" {
			fmt.Fprintf(&out, " %s: %s", name, value)
		}
	}
	fmt.Fprintf(&out, "\n  text:   %.3000s", p.Text())
	for _, line := range p.logged() {
		fmt.Fprintf(&out, "\n  logged: %s", line)
	}
	fmt.Fprintf(&out, "\n  repeat: %s", again(p.browser.t.Name()))
	p.browser.t.Error(secrets.ReplaceAllString(out.String(), "$1…"))
	return p
}

// secretField matches the names of fields whose values no test shows, and secrets the secrets in other texts.
var (
	secretField = regexp.MustCompile(`password|code|key|ticket|token|setup`)
	secrets     = regexp.MustCompile(`(alm_[a-z]+_|whsec_|(?:token|code|key)=)[^\s&",]+|` + recoveryCode)

	recoveryCode = `\b[a-z2-7]{4}(?:-[a-z2-7]{4}){3}\b`
)

// logged returns what the server logged about the request.
func (p *Page) logged() (lines []string) {
	id := p.Header.Get("X-Request-Id")
	if p.browser.Log == nil || id == "" {
		return nil
	}
	for line := range strings.SplitSeq(p.browser.Log.String(), "\n") {
		if strings.Contains(line, id) {
			lines = append(lines, line)
		}
	}
	return lines
}

// again returns the command that runs a test of the package once more.
func again(test string) string {
	folder, _ := os.Getwd() // go test runs a test in the folder of its package
	if _, inside, found := strings.Cut(filepath.ToSlash(folder), "/authserver/"); found {
		folder = "./authserver/" + inside
	}
	return "go test -count=1 " + folder + " -run '^" + strings.ReplaceAll(test, "/", "$/^") + "$'"
}
