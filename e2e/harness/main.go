package harness

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Main runs the tests of a package and returns the exit status for its TestMain. Unless -parallel is given, up to
// atOnce tests run in parallel: more than there are processors, because they mostly wait for servers. On a machine with
// one processor it is two, so that no service waits too long for its stores. At the end it searches for leaked secrets,
// even if tests failed, so that a second run of the tests cannot hide a leak.
func Main(m *testing.M, atOnce int) (status int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if runtime.NumCPU() == 1 {
			atOnce = min(atOnce, 2)
		}
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	status = m.Run()
	stopSharedBrowser()
	return max(status, LookForLeaks())
}

// must fails the test now if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// EverythingRan reports whether the whole suite of a package ran.
func EverythingRan() bool {
	for _, part := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if flag.Lookup(part).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// Concurrently sends requests at the same moment, one from each racer, and returns the responses.
func Concurrently(racers int, send func(racer int) Answer) []Answer {
	answers := make([]Answer, racers)
	var start, end sync.WaitGroup
	start.Add(1)
	for i := range answers {
		end.Go(func() {
			start.Wait()
			answers[i] = send(i)
		})
	}
	start.Done()
	end.Wait()
	return answers
}

// Suites have a short form, which `make test` runs, and a long form for `make torture`, which writes the results that
// each suite records to e2e/EVIDENCE.md.

var long = flag.Bool("long", false, "run the long form of each suite")

// Long reports whether the long form runs.
func Long() bool { return *long }

// scale is for runs against a build without a protection, because a suite may detect the fault only by chance.
var scale = flag.Int("scale", 1, "multiply the rounds of the short form, up to those of the long form")

// Rounds returns the number of repetitions in the short form or in the long form.
func Rounds(short, longForm int) int {
	if *long {
		return longForm
	}
	return min(short**scale, max(short, longForm))
}

// EvidenceVariable names a file to which each suite appends a line when it ends: what was done, how often, and the
// result.
const EvidenceVariable = "ALMONER_EVIDENCE"

// Deferred is a value for Note that is computed when the suite ends.
type Deferred[T any] func() T

func (d Deferred[T]) String() string { return fmt.Sprint(d()) }

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

// ProcessStatus returns a number from /proc/PID/status (proc(5)), such as VmRSS or VmHWM, its peak, in KiB.
func ProcessStatus(t testing.TB, pid int, name string) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	var number int
	_, line, _ := strings.Cut(string(content), name)
	if _, err := fmt.Sscan(line, &number); err != nil {
		t.Fatalf("no %s of process %d: %v", name, pid, err)
	}
	return number
}
