package torture

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// evidenceVariable names a file to which each suite adds a line once it has passed or failed: what was done, how often, with which
// result. `make torture` puts these lines into e2e/EVIDENCE.md.
const evidenceVariable = "ALMONER_EVIDENCE"

// A later is a number that is known when the suite ends, for note.
type later func() int

func (l later) String() string { return strconv.Itoa(l()) }

// note adds the suite's line when its test ends. What says what was done, with its count.
func note(t *testing.T, format string, args ...any) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		path := os.Getenv(evidenceVariable)
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
