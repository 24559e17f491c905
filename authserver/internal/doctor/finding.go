package doctor

import (
	_ "embed" // for the table
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
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
	if r.Count(Warn) > 0 {
		r.Verdict = Warn
	}
	if r.Count(Fail) > 0 {
		r.Verdict = Fail
	}
}

// The possible findings, in the format of the report. {client} stands for the client's name.
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
func (w *run) find(code string, about *wire.Answer, details ...string) {
	f, known := w.table[code]
	if !known {
		f = Finding{Verdict: Fail, Code: code, Symptom: code} // TestFindings_MatchCode prevents this
	}
	f.Step, f.Symptom, f.Effect, f.Remedy = w.step, w.named(f.Symptom), w.named(f.Effect), w.named(f.Remedy)
	details = slices.DeleteFunc(details, func(s string) bool { return s == "" })
	f.Detail = w.secrets.Show(strings.Join(details, "; "), 400)
	if about != nil {
		f.Sent, f.Got, f.Milliseconds = w.sent(about.Request), w.got(about), about.Took.Milliseconds()
	}
	w.report.Findings = append(w.report.Findings, f)
	w.tell(f)
}

// named replaces {client} by the client's name, capitalized at the beginning of a sentence.
func (w *run) named(text string) string {
	begins := strings.ToUpper(w.profile.title[:1]) + w.profile.title[1:]
	text = strings.ReplaceAll("\n"+text, ". {client}", ". "+begins)
	text = strings.ReplaceAll(text, "\n{client}", "\n"+begins)
	return strings.TrimPrefix(strings.ReplaceAll(text, "{client}", w.profile.title), "\n")
}

func (w *run) sent(r wire.Request) string {
	text := r.Method + " " + w.secrets.Address(r.URL)
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

// got returns status, time, and the relevant headers. It never shows a body, which may be a token.
func (w *run) got(a *wire.Answer) string {
	if a.Status == 0 {
		return fmt.Sprintf("no response in %d ms", a.Took.Milliseconds())
	}
	text := fmt.Sprintf("%d in %d ms", a.Status, a.Took.Milliseconds())
	if kind := a.Header.Get("Content-Type"); kind != "" {
		text += ", " + w.secrets.Show(kind, 80)
	}
	if location := a.Header.Get("Location"); location != "" {
		text += ", Location: " + w.secrets.Address(location)
	}
	if challenge := a.Header.Get("WWW-Authenticate"); challenge != "" {
		text += ", WWW-Authenticate: " + w.secrets.Show(challenge, 300)
	}
	return text
}
