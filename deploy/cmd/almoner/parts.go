package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A suite is a set of tests of packages of e2e, by a pattern for go test's -run.
type suite struct {
	pattern string
	folders []string
}

// parts are the suites with a long form, by the names that `make torture` accepts.
func parts() map[string]suite {
	folder, gateways := []string{"./torture"}, []string{"./gateway"}
	return map[string]suite{
		"races":    {"^Test(RefreshRace|CodeRace|.*_EndsConcurrentRefresh)", folder},
		"lost":     {"^Test(LostAnswers|OneKeyRace|ThiefRace|Repeat)_", folder},
		"broken":   {"^TestBrokenBuilds_", folder},
		"model":    {"^TestModel_", folder},
		"linear":   {"^TestHistories_", folder},
		"kill":     {"^TestKill_", folder},
		"redis":    {"^TestRedis", folder},
		"postgres": {"^TestPostgres_", folder},
		"flood":    {"^TestFlood_", folder},
		"restart":  {"^TestRestarts_", folder},
		"gateways": {"^TestRestarts", gateways},
		"upgrade":  {"^TestUpgrades_", gateways},
		"stalls":   {"^TestStalls_", folder},
		"citus":    {"^TestCitus_", folder},
		"greedy":   {"^TestGreedyCallers_", folder},
		"backlog":  {"^TestBacklog_", folder},
		"recovery": {"^TestRecovery_", []string{"./torture", "./runbooks"}},
		"time":     {"_DoesNotReveal(Accounts|Clients)$", []string{"./attack"}},
	}
}

const (
	evidenceFile  = "e2e/EVIDENCE.md"
	tortureWithin = "45m"

	// detectorPart is the part that runs the tests of every package with the race detector.
	detectorPart = "detector"
	// yearPart is the part that simulates a year of grants; authserver's tests run its long form if longVariable is
	// set.
	yearPart     = "year"
	longVariable = "ALMONER_LONG"
)

// torture runs the long form of one part and adds the results to EVIDENCE.md.
func torture(ctx context.Context, root, part string) error {
	what, known := parts()[part]
	if !known && part != detectorPart && part != yearPart {
		names := append(slices.Sorted(maps.Keys(parts())), yearPart, detectorPart)
		return fmt.Errorf("unknown part: use make torture PART=%s", strings.Join(names, "|"))
	}
	t, race, err := begin(ctx, root)
	if err != nil {
		return err
	}
	if part == detectorPart && !race {
		return errors.New("the race detector needs gcc and libc6-dev")
	}
	lines := filepath.Join(t.root, ".almoner", "evidence")
	if err := os.Remove(lines); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.env = append(t.env, "ALMONER_EVIDENCE="+lines)
	began := time.Now()
	err = t.withServers(ctx, func() {
		switch part {
		case detectorPart:
			t.detectRaces(ctx, lines)
			return
		case yearPart:
			t.simulateYear(ctx, lines)
			return
		}
		arguments := []string{"-p=1", "-timeout=" + tortureWithin, "-run=" + what.pattern}
		t.endToEnd(ctx, "torture, "+part, slices.Concat(arguments, what.folders, []string{"-long"})...)
	})
	if err != nil {
		return err
	}
	return t.result(t.addEvidence(ctx, part, lines, began))
}

// endToEnd runs tests of e2e once.
func (t *testRun) endToEnd(ctx context.Context, name string, arguments ...string) {
	t.step(ctx, name, endToEnd, nil, "go", append([]string{"test", "-count=1"}, arguments...)...)
}

// detectRaces runs the tests of every package outside e2e with the race detector.
func (t *testRun) detectRaces(ctx context.Context, lines string) {
	arguments := append([]string{"-race", "-count=1"}, patterns(endToEnd)...)
	t.goTest(ctx, "with the race detector", ".", []string{"CGO_ENABLED=1"}, arguments...)
	t.record(lines, "the tests of every package outside e2e", "no data race")
}

// simulateYear runs the long form of the simulated year.
func (t *testRun) simulateYear(ctx context.Context, lines string) {
	t.step(ctx, "torture, "+yearPart, "authserver", []string{longVariable + "=1"}, "go", "test", "-count=1", "-v",
		"-timeout="+tortureWithin, "-run=^TestRetention_YearOfGrantsStaysFlat$", "./internal/app")
	t.record(lines, "a year of 60,000 grants", "passed")
}

// record writes the result of a part whose tests do not record one.
func (t *testRun) record(lines, did, result string) {
	if len(t.failed) > 0 {
		result = "FAILED"
	}
	if err := os.WriteFile(lines, []byte(did+": "+result+"\n"), 0o600); err != nil {
		t.failed = append(t.failed, err.Error())
	}
}

// addEvidence adds a section to EVIDENCE.md: commit and machine, and the line of each suite.
func (t *testRun) addEvidence(ctx context.Context, part, lines string, began time.Time) error {
	noted, err := os.ReadFile(lines)
	if err != nil {
		return fmt.Errorf("no suite recorded a result: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(t.root, evidenceFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = fmt.Fprintf(file, "\n### %s, %s\n\nCommit %s; %d processors; %s in all.\n\n- %s\n", part,
		began.UTC().Format("2006-01-02 15:04 UTC"), t.commit(ctx), runtime.NumCPU(),
		time.Since(began).Round(time.Second), strings.ReplaceAll(strings.TrimSpace(string(noted)), "\n", "\n- "))
	return err
}

// commit returns the current commit, with "-dirty" if any file but EVIDENCE.md has changed.
func (t *testRun) commit(ctx context.Context) string {
	var name strings.Builder
	if err := t.command(ctx, ".", nil, &name, "git", "rev-parse", "--short", "HEAD").Run(); err != nil {
		return "unknown"
	}
	diff := t.command(ctx, ".", nil, io.Discard, "git", "diff", "--quiet", "HEAD", "--", ".", ":(exclude)"+evidenceFile)
	if err := diff.Run(); err != nil {
		return strings.TrimSpace(name.String()) + "-dirty"
	}
	return strings.TrimSpace(name.String())
}

// measurements are the parts of `make bench`: the test of each, and its time limit.
func measurements() map[string][2]string {
	return map[string][2]string{
		"speed":   {"^TestSpeed$", "20m"},
		"growth":  {"^TestGrowth$", "20m"},
		"soak":    {"^TestSoak$", "20m"},
		"startup": {"^TestStartup$", "5m"},
		"floor":   {"^TestFloor$", "5m"},
		"cluster": {"^TestCluster$", "10m"},
		"citus":   {"^TestCitus$", "10m"},
		"landed":  {"^TestLanded$", "15m"},
	}
}

const defaultMeasurement = "speed"

// bench measures a part and writes the results to its section of e2e/bench/RESULTS.md. It checks nothing else.
// PROFILE=1 also writes profiles of the services; SHORT=1 runs everything at a small scale, which measures nothing.
func bench(ctx context.Context, root, part string) error {
	what, known := measurements()[part]
	if !known {
		return fmt.Errorf("unknown part: use make bench PART=%s",
			strings.Join(slices.Sorted(maps.Keys(measurements())), "|"))
	}
	t, _, err := begin(ctx, root)
	if err != nil {
		return err
	}
	arguments := []string{"-v", "-timeout=" + what[1], "-run=" + what[0]}
	if os.Getenv("SHORT") != "" {
		arguments = append(arguments, "-short")
	}
	arguments = append(arguments, "./bench", "-measure")
	if os.Getenv("PROFILE") != "" {
		arguments = append(arguments, "-profiles="+filepath.Join(root, ".almoner", "profiles"))
	}
	return t.result(t.withServers(ctx, func() { t.endToEnd(ctx, "bench, "+part, arguments...) }))
}
