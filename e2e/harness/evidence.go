package harness

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Suites have a short form, which `make test` runs, and a long form for `make torture`, which writes the results that
// each suite records to e2e/EVIDENCE.md.

var long = flag.Bool("long", false, "run the long form of each suite")

// Long reports whether the long form runs.
func Long() bool { return *long }

// UseShortForm makes a test run suites in their short form, whatever the flag says.
func UseShortForm(t *testing.T) {
	t.Helper()
	before := *long
	*long = false
	t.Cleanup(func() { *long = before })
}

// scale is for runs against a build without a protection, because a suite may detect the fault only by chance.
var scale = flag.Int("scale", 1, "multiply the rounds of the short form, up to those of the long form")

// Rounds returns the number of repetitions in the short form or in the long form.
func Rounds(short, longForm int) int {
	if *long {
		return longForm
	}
	return min(short**scale, max(short, longForm))
}

// NeedsQuiet skips a test of response times in `make test`, which runs other tests at the same time. The part of
// `make torture` runs it.
func NeedsQuiet(t *testing.T, part string) {
	t.Helper()
	if !*long && *scale == 1 {
		t.Skipf("it measures response times, which needs a quiet machine: make torture PART=%s", part)
	}
}

// Within returns how long something may take at most: the limit in the long form, which has a quiet machine. In the
// short form, which is part of `make test`, a duration says more about the machine than about the product, so the test
// checks only that it ends.
func Within(limit time.Duration) time.Duration {
	if *long {
		return limit
	}
	return await.Long
}

// EvidenceVariable names a file to which each suite appends a line when it ends: what was done, how often, and the
// result.
const EvidenceVariable = "ALMONER_EVIDENCE"

// Deferred is a value for Note that is computed when the suite ends.
type Deferred[T any] func() T

func (l Deferred[T]) String() string { return fmt.Sprint(l()) }

// Record appends the suite's line when its test ends. format describes what was done and how often.
func Record(t *testing.T, format string, args ...any) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		path := os.Getenv(EvidenceVariable)
		if path == "" {
			return
		}
		result := "passed"
		if t.Failed() {
			result = "FAILED"
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = file.Close() }()
		did := fmt.Sprintf(format, args...)
		took := time.Since(began).Round(time.Second)
		if _, err := fmt.Fprintf(file, "%s: %s, %s (%s)\n", t.Name(), did, result, took); err != nil {
			t.Error(err)
		}
	})
}
