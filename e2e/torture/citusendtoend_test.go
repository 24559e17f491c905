package torture

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// notDistributed are the tests of e2e that do not run against a distributed database, each with the reason.
var notDistributed = map[string]string{}

// TestCitus_EndToEndTestsPass runs the tests of e2e that share a stack against a distributed installation.
func TestCitus_EndToEndTestsPass(t *testing.T) {
	if !harness.Long() {
		t.Skip("only in the long form: make torture PART=citus")
	}
	passed := 0
	harness.Record(t, "%v tests of e2e", harness.Deferred[int](func() int { return passed }))
	harness.StartCitus(t, 2, false)
	var skipped []string
	for name := range notDistributed {
		skipped = append(skipped, name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=30m",
		fmt.Sprintf("-skip=^(%s)$", strings.Join(skipped, "|")), ".")
	command.Dir = ".."
	out, err := command.CombinedOutput()
	passed = bytes.Count(out, []byte("\n--- PASS: "))
	if err != nil || passed == 0 {
		t.Errorf("go test: %v\n%s", err, out)
	}
}
