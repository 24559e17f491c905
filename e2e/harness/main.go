package harness

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
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

// EverythingRan reports whether the whole suite of a package ran.
func EverythingRan() bool {
	for _, part := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if flag.Lookup(part).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}
