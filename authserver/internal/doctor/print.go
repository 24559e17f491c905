package doctor

import (
	"encoding/json"
	"fmt"
	"io"
)

// titles returns the titles of the steps.
func titles() map[string]string {
	return map[string]string{
		"reach":     "1 Reach the server",
		"resource":  "2 The protected resource's metadata",
		"server":    "3 The authorization server's metadata",
		"authorize": "4 Authorize",
		"token":     "5 Tokens",
		"call":      "6 First calls",
		"refresh":   "7 Refresh",
		"clean up":  "8 Clean up",
	}
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
		_, _ = fmt.Fprintf(t.Out, "\n%s\n", titles()[f.Step])
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
	words := map[Verdict]string{
		OK:   "All is well",
		Warn: "It works, with warnings",
		Fail: "Something is wrong",
	}[r.Verdict]
	if r.Stopped != "" {
		words = map[Verdict]string{
			OK:   "All is well so far",
			Warn: "It works so far, with warnings",
			Fail: "Something is wrong",
		}[r.Verdict]
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
