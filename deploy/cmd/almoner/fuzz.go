package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

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
	if err := dieWithParent(); err != nil {
		return err
	}
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
	lines := filepath.Join(t.root, ".almoner", "evidence")
	if err := os.MkdirAll(filepath.Dir(lines), 0o755); err != nil {
		return err
	}
	var fuzzing error
	if err := t.withServers(ctx, func() { fuzzing = t.fuzzEach(ctx, targets, each, lines) }); err != nil {
		return err
	}
	return t.result(fuzzing)
}

// fuzzEach runs the targets one after the other, and adds each result to EVIDENCE.md immediately.
func (t *testRun) fuzzEach(ctx context.Context, targets []target, each, lines string) error {
	inputs, err := t.fuzzInputs(ctx)
	if err != nil {
		return err
	}
	for _, one := range targets {
		began := time.Now()
		noted := t.fuzzOne(ctx, one, each, inputs)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := os.WriteFile(lines, []byte(noted), 0o600); err != nil {
			return err
		}
		if err := t.addEvidence(ctx, "fuzz", lines, began); err != nil {
			return err
		}
	}
	return nil
}

// fuzzInputs returns the directory of go test -fuzz in the Go cache for interesting inputs.
func (t *testRun) fuzzInputs(ctx context.Context) (string, error) {
	var out strings.Builder
	if err := t.command(ctx, ".", nil, &out, "go", "env", "GOCACHE").Run(); err != nil {
		return "", fmt.Errorf("find go's cache: %w", err)
	}
	return filepath.Join(strings.TrimSpace(out.String()), "fuzz", repository), nil
}

// fuzzTargets returns the fuzz tests of every module whose names match: go prints a package's test names and then the
// package.
func (t *testRun) fuzzTargets(ctx context.Context, only *regexp.Regexp) ([]target, error) {
	var targets []target
	for _, m := range modules() {
		var out bytes.Buffer
		var extra []string
		if m.outside {
			extra = ownDependencies()
		}
		if err := t.command(ctx, m.name, extra, &out, "go", "test", "-list=^Fuzz", "./...").Run(); err != nil {
			return nil, fmt.Errorf("list the fuzz tests of %s: %w\n%s", m.name, err, out.String())
		}
		var names []string
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "Fuzz"):
				names = append(names, fields[0])
			case strings.HasPrefix(line, "ok") && len(fields) > 1:
				matching := slices.DeleteFunc(names, func(name string) bool { return !only.MatchString(name) })
				for _, name := range matching {
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
	if ctx.Err() != nil {
		return ""
	}
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
