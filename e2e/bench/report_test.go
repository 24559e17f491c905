package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

const (
	resultsFile = "RESULTS.md"
	preface     = `# What ` + "`make bench`" + ` measured

Each section is what one part (` + "`make bench PART=…`" + `) wrote when it was last run, ` +
		`on the machine that it names; the others stay as they are.
Absolute figures change from machine to machine and with whatever else runs there. Ratios within one section hold.
`
)

// A report is the section of RESULTS.md that one part writes.
type report struct {
	part  string
	goals []goal
	strings.Builder
}

// A goal is a target for a figure, set by an issue or by the project.
type goal struct {
	what, asked string
	measured    string
	met         bool
}

func newReport(part string) *report {
	r := &report{part: part}
	r.line("## %s\n", part)
	r.line("%s.\n", machine())
	if load := loadAverage(); load > 0.5 {
		r.line("**The machine was busy with other work** (load average %.1f before the start): what needs several "+
			"processes suffers more from that than", load)
		r.line("what needs one, so even the ratios are worse than on a quiet machine. Run it again there.\n")
	}
	return r
}

func (r *report) line(format string, args ...any) {
	_, _ = fmt.Fprintf(r, format+"\n", args...) // a strings.Builder never fails
}

// wants records a goal. A figure that was not measured is NaN and meets no goal.
func (r *report) wants(what, asked string, measured float64, unit string, met bool) {
	if math.IsNaN(measured) {
		r.goals = append(r.goals, goal{what, asked, "not measured", false})
		return
	}
	r.goals = append(r.goals, goal{what, asked, figure(measured) + unit, met})
}

// figure formats a number with its significant digits.
func figure(n float64) string {
	switch {
	case math.Abs(n) >= 100:
		return fmt.Sprintf("%.0f", n)
	case math.Abs(n) >= 10:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

// write prints the section and replaces the part's section in RESULTS.md.
func (r *report) write(t testing.TB) {
	t.Helper()
	if len(r.goals) > 0 {
		r.line("\n| goal | asked | measured | met |\n|---|---|---|---|")
		for _, g := range r.goals {
			met := "no"
			if g.met {
				met = "yes"
			}
			r.line("| %s | %s | %s | %s |", g.what, g.asked, g.measured, met)
		}
	}
	fmt.Print(r.String())
	if testing.Short() {
		return // a short run measures nothing
	}
	old, err := os.ReadFile(resultsFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(resultsFile, []byte(replaceSection(string(old), r.part, r.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replaceSection replaces the section of the same part, or appends a new one.
func replaceSection(page, part, section string) string {
	parts := strings.Split("\n"+page, "\n## ")
	var out strings.Builder
	out.WriteString(preface)
	found := false
	for _, old := range parts[1:] {
		name, _, _ := strings.Cut(old, "\n")
		if name == part {
			found = true
			old = strings.TrimPrefix(section, "## ")
		}
		out.WriteString("\n## " + strings.TrimRight(old, "\n") + "\n")
	}
	if !found {
		out.WriteString("\n" + strings.TrimRight(section, "\n") + "\n")
	}
	return out.String()
}

func machine() string {
	model := "processor unknown"
	content, _ := os.ReadFile("/proc/cpuinfo")
	if _, line, found := strings.Cut(string(content), "model name"); found {
		model, _, _ = strings.Cut(strings.TrimLeft(line, "\t: "), "\n")
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	} else if changed := exec.Command("git", "diff", "--quiet", "HEAD", "--", ":(top)",
		":(top,exclude)e2e/bench/"+resultsFile).Run(); changed != nil {
		commit = append(bytes.TrimSpace(commit), " with changes"...)
	}
	return fmt.Sprintf("%s, commit %s: %d processors (%s), %s, load average %.1f at the start",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), bytes.TrimSpace(commit), runtime.NumCPU(), model,
		runtime.Version(), loadAverage())
}

// loadAverage returns the load average of the last minute, or 0 if the kernel does not provide it.
func loadAverage() float64 {
	var load float64
	content, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(content), &load)
	return load
}

func TestReplaceSection_ReplacesOnlyItsPart(t *testing.T) {
	page := replaceSection("# an older page\n\nwithout sections\n", "speed", "## speed\n\nfast\n")
	page = replaceSection(page, "soak", "## soak\n\nlong\n")
	page = replaceSection(page, "speed", "## speed\n\nfaster\n")
	if want := preface + "\n## speed\n\nfaster\n\n## soak\n\nlong\n"; page != want {
		t.Errorf("got\n%s\nwant\n%s", page, want)
	}
}

func TestMiddle_ReturnsMedian(t *testing.T) {
	if got := middle([]float64{9, 1, 2}); got != 2 {
		t.Error(got)
	}
	if got := middle([]float64{4, 1, 2, 9}); got != 3 {
		t.Error(got)
	}
	if !math.IsNaN(middle(nil)) {
		t.Error("the median of no figures is not NaN")
	}
}
