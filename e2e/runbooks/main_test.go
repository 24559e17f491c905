// Package runbooks tests the pages of deploy/runbooks, and deploy/docs/recovery.md.
//
// Each test runs the blocks of pages unchanged against real servers and the two binaries. What a page leaves to the
// operator's installation, such as stopping a service, the test does between the blocks. Every block is run by at
// least one test.
package runbooks

import (
	"fmt"
	"os"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have used.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 5)
	if code == 0 && harness.EverythingRan() {
		code = checkEveryBlockWasRun()
	}
	os.Exit(code)
}

func checkEveryBlockWasRun() (code int) {
	missing, err := unrunBlocks()
	if err != nil || len(missing) > 0 {
		fmt.Println("FAIL: no test runs", missing, err)
		return 1
	}
	return 0
}
