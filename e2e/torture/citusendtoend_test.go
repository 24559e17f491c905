package torture

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// notDistributed matches the tests of e2e that do not run against a distributed database: those that need no stack, or
// their own Postgres or a browser; those that hold locks on rows of copied tables, because Citus locks whole tables;
// and those that change times with SQL that Citus refuses.
const notDistributed = "^Test(Architecture|ChecksAndWrites_|Conformance_Expected|DeployPages|EarlierPrograms|Pages|" +
	"README|SQL|Schema|Screenshots|Settings|Spec|Style|" +
	"Described_StoreUnavailable|Doctor_MetadataDocument|Documents|Finish|Forms_Crash|Leaks|Logs|Mails|Metrics|" +
	"Migrate|Outage|Races|RedisReplies|SigningKey|Traces|Webhooks_Deliver|" +
	"Browser|" +
	"Tie|" +
	"ConnectorPolicy_Lowering|Credentials_Revoked|IdempotencyKey_AfterAccess|Introspection_Invalid|" +
	"Registered_OldSecret|WorkspaceRoutes_RejectInvalid)"

// TestCitus_EndToEndTestsPass runs the tests of e2e that share a stack against a distributed installation, one at a
// time.
func TestCitus_EndToEndTestsPass(t *testing.T) {
	onlyLong(t, "citus", "it needs the extension citus")
	passed := 0
	harness.Record(t, "%v tests of e2e", harness.Deferred[int](func() int { return passed }))
	harness.StartCitus(t, 2, false)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-parallel=1", "-timeout=30m",
		"-skip="+notDistributed, ".")
	command.Dir = ".."
	out, err := command.CombinedOutput()
	passed = bytes.Count(out, []byte("\n--- PASS: "))
	if err != nil || passed == 0 {
		t.Errorf("go test: %v\n%s", err, out)
	}
}
