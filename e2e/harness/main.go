package harness

import (
	"flag"
	"strconv"
	"testing"
)

// Main runs the tests of a package and returns the exit status, for its TestMain. Up to atOnce tests run beside each
// other, unless -parallel says otherwise: more than there are processors, for they mostly wait for servers. In the end
// it looks for secrets wherever they must not be, whatever else failed: a second try of the tests may not leak again.
func Main(m *testing.M, atOnce int) (status int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	status = m.Run()
	return max(status, LookForLeaks())
}

// EverythingRan says whether this was the whole suite of a package. A part of it need not have met everything.
func EverythingRan() bool {
	for _, part := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if flag.Lookup(part).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}
