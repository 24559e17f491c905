package doctor

import (
	_ "embed" // for the table
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Verdict is the severity of a finding.
type Verdict string

// The verdicts. A warning is a problem for some clients, or something that works by chance.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// A Finding is the result of one check.
type Finding struct {
	Step         string  `json:"step"`
	Verdict      Verdict `json:"verdict"`
	Code         string  `json:"code"` // stable, for programs
	Symptom      string  `json:"says"`
	Detail       string  `json:"detail,omitempty"` // the values seen
	Sent         string  `json:"sent,omitempty"`
	Got          string  `json:"got,omitempty"`
	Effect       string  `json:"effect,omitempty"` // on the client; not for ok
	Remedy       string  `json:"mend,omitempty"`   // not for ok
	Milliseconds int64   `json:"milliseconds"`     // of the response, 0 for none
}

// A Report holds all findings.
type Report struct {
	URL      string    `json:"url"`
	As       string    `json:"as"`
	Verdict  Verdict   `json:"verdict"`           // the worst of the findings
	Stopped  string    `json:"stopped,omitempty"` // why the run ended early, "" if it did not
	Findings []Finding `json:"findings"`
}

// Count returns the number of findings with a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, f := range r.Findings {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

func (r *Report) judge() {
	r.Verdict = OK
	for _, v := range []Verdict{Warn, Fail} {
		if r.Count(v) > 0 {
			r.Verdict = v
		}
	}
}

// findingsJSON has the possible findings, in the format of the report. {client} stands for the client's name.
//
//go:embed findings.json
var findingsJSON []byte

func possibleFindings() (map[string]Finding, error) {
	var all []Finding
	if err := json.Unmarshal(findingsJSON, &all); err != nil {
		return nil, fmt.Errorf("read the findings: %w", err)
	}
	table := map[string]Finding{}
	for _, f := range all {
		table[f.Code] = f
	}
	return table, nil
}

// find records a finding of the table, about a response or nil, with the values seen.
func (r *run) find(code string, about *response, details ...string) {
	f, known := r.table[code]
	if !known {
		f = Finding{Verdict: Fail, Code: code, Symptom: code} // TestFindings_MatchCode prevents this
	}
	f.Step, f.Symptom, f.Effect, f.Remedy = r.step, r.named(f.Symptom), r.named(f.Effect), r.named(f.Remedy)
	details = slices.DeleteFunc(details, func(s string) bool { return s == "" })
	f.Detail = r.secrets.show(strings.Join(details, "; "), 400)
	if about != nil {
		f.Sent, f.Got, f.Milliseconds = r.sent(about.request), r.got(about), about.took.Milliseconds()
	}
	r.report.Findings = append(r.report.Findings, f)
	r.Tell(f)
}

// stop records a finding after which the client cannot continue, and ends the step: it does not return.
func (r *run) stop(code string, about *response, details ...string) {
	r.find(code, about, details...)
	panic(errStop)
}

// A check is the code of a finding, and when to record it.
type check struct {
	when   bool
	code   string
	detail string
}

// findFirst records the finding of the first check that applies.
func (r *run) findFirst(about *response, checks []check) {
	for _, c := range checks {
		if c.when {
			r.find(c.code, about, c.detail)
			return
		}
	}
}

// findAll records the findings of all checks that apply, and reports whether there are any.
func (r *run) findAll(about *response, checks []check) (found bool) {
	for _, c := range checks {
		if c.when {
			r.find(c.code, about, c.detail)
			found = true
		}
	}
	return found
}

// either returns one of two codes.
func either(first bool, one, other string) string {
	if first {
		return one
	}
	return other
}

// named replaces {client} by the client's name, capitalized at the beginning of a sentence.
func (r *run) named(text string) string {
	begins := strings.ToUpper(r.profile.Title[:1]) + r.profile.Title[1:]
	text = strings.ReplaceAll("\n"+text, ". {client}", ". "+begins)
	text = strings.ReplaceAll(text, "\n{client}", "\n"+begins)
	return strings.TrimPrefix(strings.ReplaceAll(text, "{client}", r.profile.Title), "\n")
}

func (r *run) sent(req request) string {
	text := req.method + " " + r.secrets.address(req.url)
	if req.note != "" {
		text += " (" + req.note + ")"
	}
	return text
}

// got returns status, time, and the relevant headers. It never shows a body, which may be a token.
func (r *run) got(resp *response) string {
	if resp.status == 0 {
		return fmt.Sprintf("no response in %d ms", resp.took.Milliseconds())
	}
	text := fmt.Sprintf("%d in %d ms", resp.status, resp.took.Milliseconds())
	if kind := resp.header.Get("Content-Type"); kind != "" {
		text += ", " + r.secrets.show(kind, 80)
	}
	if location := resp.header.Get("Location"); location != "" {
		text += ", Location: " + r.secrets.address(location)
	}
	if challenge := resp.header.Get("WWW-Authenticate"); challenge != "" {
		text += ", WWW-Authenticate: " + r.secrets.show(challenge, 300)
	}
	return text
}

// Text writes findings as text while they are recorded.
type Text struct {
	Out  io.Writer
	Head string // written before the first finding
	step string
}

// Tell writes one finding. It ignores write errors.
func (t *Text) Tell(f Finding) {
	if t.step == "" {
		_, _ = fmt.Fprintln(t.Out, t.Head)
	}
	if f.Step != t.step {
		t.step = f.Step
		_, _ = fmt.Fprintf(t.Out, "\n%s\n", titleOf(f.Step))
	}
	mark := string(f.Verdict)
	if f.Verdict == Fail {
		mark = "FAIL"
	}
	_, _ = fmt.Fprintf(t.Out, "  %-4s  %s\n", mark, f.Symptom)
	for _, line := range []struct{ name, text string }{
		{"sent", f.Sent}, {"got", f.Got}, {"seen", f.Detail}, {"effect", f.Effect}, {"fix", f.Remedy},
	} {
		if line.text != "" {
			_, _ = fmt.Fprintf(t.Out, "        %-6s %s\n", line.name, line.text)
		}
	}
}

// End writes the summary.
func (r *Report) End(out io.Writer) {
	words := map[Verdict]string{OK: "All is well", Warn: "It works", Fail: "Something is wrong"}[r.Verdict]
	if r.Stopped != "" && r.Verdict != Fail {
		words += " so far"
	}
	if r.Verdict == Warn {
		words += ", with warnings"
	}
	_, _ = fmt.Fprintf(out, "\n%s: %d ok, %d warn, %d FAIL.\n", words, r.Count(OK), r.Count(Warn), r.Count(Fail))
	if r.Stopped != "" {
		_, _ = fmt.Fprintln(out, r.Stopped)
	}
}

// JSON writes the whole report as JSON.
func (r *Report) JSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
