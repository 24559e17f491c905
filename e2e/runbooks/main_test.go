package runbooks

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have met.
var met harness.Secrets

// testsAtOnce are all that there are: they mostly wait for servers.
const testsAtOnce = "5"

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	code := m.Run()
	code = max(code, harness.LookForLeaks())
	if code == 0 && everythingRan() {
		code = lookForBlocksThatNobodyWalked()
	}
	os.Exit(code)
}

// everythingRan says whether this was the whole suite: a part of it walks through a part of the pages.
func everythingRan() bool {
	for _, part := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if flag.Lookup(part).Value.String() != "" {
			return false
		}
	}
	return true
}

func lookForBlocksThatNobodyWalked() (code int) {
	missing, err := forgotten()
	if err != nil || len(missing) > 0 {
		fmt.Println("FAIL: no test runs", missing, err)
		return 1
	}
	return 0
}
