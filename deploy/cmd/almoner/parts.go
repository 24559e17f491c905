package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A part is what one `make torture` runs: tests of packages of e2e, by a pattern for go test's -run, or a function.
type part struct {
	pattern string
	folders []string
	run     func(t *testRun, ctx context.Context, lines string)
	minutes int    // that it takes on two processors
	memory  uint64 // MiB that must be available
}

// parts are the suites with a long form, by the names that `make torture` accepts.
func parts() map[string]part {
	const some, much = 2 << 10, 4 << 10
	suite := func(pattern string, minutes int, memory uint64, folders ...string) part {
		return part{pattern: pattern, minutes: minutes, memory: memory, folders: folders}
	}
	return map[string]part{
		"races":    suite("^Test(RefreshRace|CodeRace|.*_EndsConcurrentRefresh)", 13, some, "./torture"),
		"lost":     suite("^Test(LostAnswers|OneKeyRace|ThiefRace)_", 4, some, "./torture"),
		"broken":   suite("^TestBrokenBuilds_", 15, some, "./torture"),
		"model":    suite("^TestModel_", 26, some, "./torture"),
		"linear":   suite("^TestHistories_", 13, some, "./torture"),
		"kill":     suite("^TestKill_", 22, some, "./torture"),
		"redis":    suite("^TestRedis", 19, some, "./torture"),
		"postgres": suite("^TestPostgres_", 35, some, "./torture"),
		"flood":    suite("^TestFlood_", 6, some, "./torture"),
		"restart":  suite("^TestRestarts_", 8, some, "./torture"),
		"gateways": suite("^TestRestarts", 16, some, "./gateway"),
		"upgrade":  suite("^TestUpgrades_", 18, some, "./gateway"),
		"stalls":   suite("^TestStalls_", 11, some, "./torture"),
		"citus":    suite("^TestCitus_", 14, much, "./torture"),
		"greedy":   suite("^TestGreedyCallers_", 4, some, "./torture"),
		"backlog":  suite("^TestBacklog_", 33, much, "./torture"),
		"recovery": suite("^TestRecovery_", 8, much, "./torture", "./runbooks"),
		"time":     suite("_DoesNotReveal(Accounts|Clients)$", 11, some, "./attack"),
		"hostile":  suite("^Test(Parsers_|Pages_DoNot|Markup_Request)", 6, some, "./attack"),
		"year":     {run: (*testRun).simulateYear, minutes: 3, memory: some},
		"detector": {run: (*testRun).detectRaces, minutes: 30, memory: much},
	}
}

const (
	evidenceFile  = "e2e/EVIDENCE.md"
	tortureWithin = "45m"
)

// announce says what a part takes, and returns an error if this machine does not have it.
func (p part) announce(name string) error {
	fmt.Printf("almoner: %s takes %d minutes on two processors, and %d MiB of memory\n", name, p.minutes, p.memory)
	free := availableMemory() >> 20 // 0 if the kernel does not say
	switch {
	case free > 0 && free < p.memory:
		return fmt.Errorf("%s cannot run here: only %d MiB of memory are available", name, free)
	case name == "citus" && !hasCitus():
		return fmt.Errorf("%s cannot run here: %w", name, localstore.ErrNoCitus)
	case name == "greedy" && !makesControlGroups():
		fmt.Println("almoner: the kernel lets this user make no control group, so only resident memory is checked")
	}
	return nil
}

// hasCitus looks where localstore.StartCitus does.
func hasCitus() bool {
	share, _ := exec.Command("pg_config", "--sharedir").Output()
	folders := []string{strings.TrimSpace(string(share)), "/usr/share/postgresql/*"}
	return slices.ContainsFunc(folders, func(dir string) bool {
		found, _ := filepath.Glob(filepath.Join(dir, "extension", "citus.control"))
		return len(found) > 0
	})
}

func makesControlGroups() bool {
	return slices.ContainsFunc([]string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}, func(root string) bool {
		dir, err := os.MkdirTemp(root, "almoner-")
		return err == nil && os.Remove(dir) == nil
	})
}

// torture runs the long form of one part and adds the results to EVIDENCE.md.
func torture(ctx context.Context, root, name string) error {
	what, known := parts()[name]
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(parts())), "|")
		return fmt.Errorf("unknown part: use make torture PART=%s", names)
	}
	if err := what.announce(name); err != nil {
		return err
	}
	t, race, err := begin(ctx, root)
	if err != nil {
		return err
	}
	if name == "detector" && !race {
		return errors.New("the race detector needs gcc and libc6-dev")
	}
	lines := filepath.Join(t.root, ".almoner", "evidence")
	if err := os.Remove(lines); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.env = append(t.env, "ALMONER_EVIDENCE="+lines)
	began := time.Now()
	err = t.withServers(ctx, func() {
		if what.run != nil {
			what.run(t, ctx, lines)
			return
		}
		arguments := []string{"-p=1", "-timeout=" + tortureWithin, "-run=" + what.pattern}
		t.endToEnd(ctx, "torture, "+name, slices.Concat(arguments, what.folders, []string{"-long"})...)
	})
	if err != nil {
		return err
	}
	noted, err := os.ReadFile(lines)
	if err != nil {
		return fmt.Errorf("no suite recorded a result: %w", err)
	}
	result := map[bool]string{true: "passed", false: "FAILED"}[len(t.failed) == 0]
	suites, took := strings.Count(string(noted), "\n"), time.Since(began).Round(time.Second)
	t.say(fmt.Sprintf("%s: %d suites %s in %s; %s has what each showed", name, suites, result, took, evidenceFile))
	return t.result(t.addEvidence(ctx, name, string(noted), began))
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
	t.step(ctx, "torture, year", "authserver", []string{"ALMONER_LONG=1"}, "go", "test", "-count=1", "-v",
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
	file, err := os.OpenFile(filepath.Join(t.root, evidenceFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = fmt.Fprintf(file, "\n### %s, %s\n\nCommit %s; %d processors; %s in all.\n\n- %s\n", part,
		began.UTC().Format("2006-01-02 15:04 UTC"), t.commit(ctx), runtime.NumCPU(),
		time.Since(began).Round(time.Second), strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n- "))
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
		"speed":       {"^TestSpeed$", "20m"},
		"growth":      {"^TestGrowth$", "40m"},
		"soak":        {"^TestSoak$", "20m"},
		"cluster":     {"^TestCluster$", "10m"},
		"citus":       {"^TestCitus$", "10m"},
		"landed":      {"^TestLanded$", "15m"},
		"usage":       {"^TestUsage$", "15m"},
		"events":      {"^TestEvents$", "20m"},
		"submissions": {"^TestSubmissions$", "15m"},
		"signin":      {"^TestSignIn$", "20m"},
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

// A target is one fuzz test.
type target struct {
	folder string // of its package, in the repository
	name   string
}

// guiding returns the packages whose coverage guides the fuzzer: our own and those that parse requests. go test -fuzz
// instruments every linked package and examines all their counters after each input, which takes many times as long as
// the input itself. So only these packages are instrumented, and the test program runs without go test -fuzz.
func guiding() []string {
	return []string{
		repository + "...",
		"github.com/ory/fosite/...",
		"github.com/lestrrat-go/...",
		"encoding/...",
		"net/url",
		"mime/...",
	}
}

const repository = "github.com/almonerhq/almoner/"

// shorten limits go's attempts to minimize an input that found something. The coverage of a whole service depends on
// timing, so many inputs seem to find something, and go's default of a minute for each would leave no time for new
// inputs.
const shorten = "10x"

// fuzz runs every fuzz test of the repository whose name matches only, for a time (30s) or a number of runs
// (10000000x), one after the other on all processors, and adds the results to EVIDENCE.md. Inputs that fail are stored
// in the package's testdata/fuzz, where every `make test` runs them again.
func fuzz(ctx context.Context, root, each, only string) error {
	each = cmp.Or(each, "30s")
	if !regexp.MustCompile(`^[0-9]+(x|s|m|h)$`).MatchString(each) {
		return fmt.Errorf("invalid TIME: use a time, like make fuzz TIME=30s, or a number of runs, like TIME=10000000x")
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("ONLY must be a regular expression: %w", err)
	}
	t := newTestRun(root)
	if err := ensureStores(ctx, stack.Options{
		Tools:    t.tools,
		Progress: func(line string) { fmt.Println("almoner: " + line) },
	}); err != nil {
		return err
	}
	targets, err := t.fuzzTargets(ctx, pattern)
	if err != nil {
		return err
	}
	var fuzzing error
	if err := t.withServers(ctx, func() { fuzzing = t.fuzzEach(ctx, targets, each) }); err != nil {
		return err
	}
	return t.result(fuzzing)
}

// fuzzEach runs the targets one after the other, and adds each result to EVIDENCE.md immediately.
func (t *testRun) fuzzEach(ctx context.Context, targets []target, each string) error {
	var cache strings.Builder
	if err := t.command(ctx, ".", nil, &cache, "go", "env", "GOCACHE").Run(); err != nil {
		return fmt.Errorf("find go's cache: %w", err)
	}
	// The directory of go test -fuzz in it for interesting inputs.
	inputs := filepath.Join(strings.TrimSpace(cache.String()), "fuzz", repository)
	for _, one := range targets {
		began := time.Now()
		noted := t.fuzzOne(ctx, one, each, inputs)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := t.addEvidence(ctx, "fuzz", noted, began); err != nil {
			return err
		}
	}
	return nil
}

// fuzzTargets returns the fuzz tests of every module whose names match: go prints a package's test names and then the
// package.
func (t *testRun) fuzzTargets(ctx context.Context, only *regexp.Regexp) ([]target, error) {
	var targets []target
	for _, module := range slices.Concat(workspace(), outside()) {
		var out bytes.Buffer
		var extra []string
		if slices.Contains(outside(), module) {
			extra = ownDependencies()
		}
		if err := t.command(ctx, module, extra, &out, "go", "test", "-list=^Fuzz", "./...").Run(); err != nil {
			return nil, fmt.Errorf("list the fuzz tests of %s: %w\n%s", module, err, out.String())
		}
		var names []string
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "Fuzz") && only.MatchString(fields[0]):
				names = append(names, fields[0])
			case strings.HasPrefix(line, "ok") && len(fields) > 1:
				for _, name := range names {
					targets = append(targets, target{strings.TrimPrefix(fields[1], repository), name})
				}
				names = nil
			}
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no fuzz test matches ONLY")
	}
	return targets, nil
}

var executions = regexp.MustCompile(`execs: ([0-9]+)`)

// fuzzOne runs one target and returns its line for EVIDENCE.md.
func (t *testRun) fuzzOne(ctx context.Context, one target, each, inputs string) string {
	fmt.Printf("almoner: %s in %s\n", one.name, one.folder)
	var out bytes.Buffer
	began, result := time.Now(), "passed"
	arguments := []string{"test", "-run=^$", "-vet=off", "-timeout=0"}
	for _, packages := range guiding() {
		arguments = append(arguments, "-gcflags="+packages+"=-d=libfuzzer")
	}
	arguments = append(arguments, "-args", "-test.fuzz=^"+one.name+"$",
		"-test.fuzzcachedir="+filepath.Join(inputs, one.folder), "-test.fuzztime="+each,
		"-test.fuzzminimizetime="+shorten)
	err := t.command(ctx, one.folder, nil, io.MultiWriter(os.Stdout, &out), "go", arguments...).Run()
	if err != nil && ctx.Err() == nil {
		t.failed, result = append(t.failed, one.name), "FAILED"
	}
	count := "no"
	if found := executions.FindAllStringSubmatch(out.String(), -1); len(found) > 0 {
		count = found[len(found)-1][1]
	}
	return fmt.Sprintf("%s of %s: %s inputs, %s (%s)\n", one.name, one.folder, count, result,
		time.Since(began).Round(time.Second))
}
