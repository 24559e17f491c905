package harness

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// Suites have a short form, which `make test` runs, and a long one for `make torture`, which puts into e2e/EVIDENCE.md
// what each one notes.

var long = flag.Bool("long", false, "run the long form of each suite")

// Long says whether this is the long form.
func Long() bool { return *long }

// Rounds is how often something is tried, in the short form and in the long one.
func Rounds(short, longForm int) int {
	if *long {
		return longForm
	}
	return short
}

// EvidenceVariable names a file to which each suite adds a line once it has passed or failed: what was done, how often,
// with which result.
const EvidenceVariable = "ALMONER_EVIDENCE"

// Later is what is known when the suite ends, for Note.
type Later[T any] func() T

func (l Later[T]) String() string { return fmt.Sprint(l()) }

// Note adds the suite's line when its test ends. What says what was done, with its count.
func Note(t *testing.T, format string, args ...any) {
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
		if _, err := fmt.Fprintf(file, "%s: %s, %s (%s)\n", t.Name(), fmt.Sprintf(format, args...), result, time.Since(began).Round(time.Second)); err != nil {
			t.Error(err)
		}
	})
}
