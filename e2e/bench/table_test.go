package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// speed writes the table of all results, and the goals.
func (r *report) speed(all results, order []key) {
	r.line("%d rounds of %s each, in which everything takes its turn; generator and stores included. Figures are "+
		"medians of the rounds, and ratios", *rounds, *each)
	r.line("medians of the rounds' ratios. The floor runs one Redis script and signs one ES256 token; a list's floor " +
		"is the same handler and query")
	r.line(
		"without the gate. CPU is in microseconds a request: of the serving process, of its Postgres, of its Redis.\n")
	r.table(all, order)
	r.capacity(all)
	r.speedGoals(all)
}

// speedGoals writes the goals of issue 21.
func (r *report) speedGoals(all results) {
	ours := func(what string, connections int) key { return key{what, ourselves, connections} }
	ratio := func(what string, k, to key, least float64) { r.atLeast(all, what, k, to, least) }
	peer := func(what string) key { return key{what, peerName, 32} }
	ratio("refresh, of "+peerName+" (JWT)", ours(refreshing, 32), peer(refreshing), 3)
	ratio("code exchange, of "+peerName+" (JWT)", ours(codeExchange, 32), peer(codeExchange), 3.3)
	ratio("refresh, of our floor", ours(refreshing, 32), key{floorWork, "floor", 32}, 0.55)
	ratio("refresh, of our floor", ours(refreshing, 1), key{floorWork, "floor", 1}, 0.45)
	ratio("introspection, of "+peerName+" (opaque)", ours(introspection, 32), peer(introspection), 3)
	for _, what := range []string{garbage, badMAC, wrongSecret, wrongToken} {
		ratio(what+", of "+peerName+"'s refresh", ours(what, 32), peer(refreshing), 5)
	}
	tail := all.median(ours(garbage, 8), func(s sample) float64 { return s.percentile(0.99).Seconds() * 1e3 })
	r.wants("p99, 8 connections: "+garbage, "at most 5 ms", tail, " ms", tail <= 5)
	ungated := key{listUngated, ungatedName, 32}
	ratio("list with a connector's token, of the ungated", ours(listConnector, 32), ungated, 0.85)
}

// capacity writes the processors that a million refreshes a minute would use (deploy/SCALING.md).
func (r *report) capacity(all results) {
	const perSecond = 1e6 / 60
	refresh := key{refreshing, ourselves, 32}
	r.line("\nA million refreshes a minute (16,667 a second), from what one costs at 32 connections:\n\n| process | " +
		"µs a refresh | processors busy |\n|---|---|---|")
	for i, process := range []string{"authserver", "Postgres", "Redis"} {
		cost := all.median(refresh, func(s sample) float64 { return s.cost(i) })
		r.line("| %s | %.0f | %.1f |", process, cost, perSecond*cost/1e6)
	}
}

// table writes a row for each key, with columns only for what was measured.
func (r *report) table(all results, order []key) {
	beside, line := "", "|---|---|---|---|"
	if all.has("floor") {
		beside, line = beside+" of the floor |", line+"---|"
	}
	if all.has(peerName) {
		beside, line = beside+" of the peer |", line+"---|"
	}
	r.line(
		"| connections | what | of | requests/s |%s p50 ms | p99 ms | CPU | Postgres | Redis |\n%s---|---|---|---|---|",
		beside, line)
	for _, k := range order {
		milliseconds := func(p float64) float64 {
			return all.median(k, func(s sample) float64 { return s.percentile(p).Seconds() * 1e3 })
		}
		cost := func(i int) float64 { return all.median(k, func(s sample) float64 { return s.cost(i) }) }
		beside := ""
		if all.has("floor") {
			beside += fmt.Sprintf(" %s |", orNone(all.ratio(k, floorOf(k)), 2))
		}
		if all.has(peerName) {
			beside += fmt.Sprintf(" %s |", orNone(all.ratio(k, key{k.what, peerName, k.connections}), 2))
		}
		r.line("| %d | %s | %s | %.0f |%s %.2f | %.2f | %.0f | %s | %s |", k.connections, k.what, k.of,
			all.median(k, sample.perSecond), beside, milliseconds(0.5), milliseconds(0.99), cost(0), orNone(cost(1), 0),
			orNone(cost(2), 0))
	}
}

// floorOf returns the key with which a row is compared.
func floorOf(k key) key {
	switch {
	case strings.HasPrefix(k.what, "list"):
		return key{listUngated, ungatedName, k.connections}
	case k.what == submission, k.what == jobWork:
		return key{jobWork, "floor", k.connections}
	}
	return key{floorWork, "floor", k.connections}
}

// orNone formats a number, or returns "" if it was not measured or is zero.
func orNone(n float64, digits int) string {
	if math.IsNaN(n) || n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', digits, 64)
}

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

// atLeast records the goal that k has at least so many times the requests per second of another key.
func (r *report) atLeast(all results, what string, k, of key, least float64) {
	measured := all.ratio(k, of)
	r.wants(fmt.Sprintf("%s, %d connections", what, k.connections), fmt.Sprintf("at least %.2f", least), measured, "",
		measured >= least)
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
			met := map[bool]string{true: "yes", false: "no"}[g.met]
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
	must(t, os.WriteFile(resultsFile, []byte(replaceSection(string(old), r.part, r.String())), 0o644))
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
