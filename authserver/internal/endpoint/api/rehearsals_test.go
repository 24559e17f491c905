package api_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const rehearsals = "/rehearsals"

// planned returns the body of a rehearsal.
func planned(change string) string { return `{"change":{` + change + `}}` }

// Section 5b: who may make a change may rehearse it; bad input, unknown ids and refused changes are answered as the
// change would be; and nothing is stored. postgres.TestR1_RehearsalSaysWhatHappens tests what a rehearsal says.
func TestRehearsals_AnswerAsChangeWould(t *testing.T) {
	b := newTestEnv(t)
	member := b.Fixture.Member(perm.ProgrammesRead).String()
	app := b.registered(confidential(nil)).Text("clientId")
	_, elsewhere := b.elsewhere(true)
	policy := `"setConnectorPolicy":{"permissions":["programmes:read:programmes"],"platforms":["claude"],"days":7}`
	may := map[string]string{
		"removal":     `"removeMember":{"userId":"` + member + `"}`,
		"permissions": `"setPermissions":{"userId":"` + member + `","permissions":["programmes:read:programmes"]}`,
		"policy":      policy,
		"switch":      `"setLlmIntegration":{"enabled":false}`,
		"module":      `"disableModule":{"module":"engage"}`,
		"client":      `"deleteClient":{"clientId":"` + app + `"}`,
	}
	const stored = `account.audit_events where tenant_id = $1`
	events := b.Count(`select count(*) from `+stored, b.Fixture.WorkspaceID)
	registrar := b.Fixture.Token(b.manager, perm.AccountAPIAccess)
	for what, change := range may {
		answer := b.once(what, "POST", rehearsals, planned(change))
		if answer.Status != 200 || !strings.Contains(answer.Body, `"refused":{"requests":0,"byOperation":[]}`) {
			t.Errorf("%s\n%s", what, b.Explain(answer))
		}
		if answer := b.as(registrar, "POST", rehearsals, planned(change)); what == "client" {
			b.Wants(what+", without members", answer, 200, "")
		} else {
			b.Wants(what+", without members", answer, 403, "FORBIDDEN")
		}
	}
	b.WantsRows("answers", 0, `account.idempotency_keys where tenant_id = $1 and route like '%rehearsals'`,
		b.Fixture.WorkspaceID)
	b.WantsRows("events", events, stored, b.Fixture.WorkspaceID)
	type want struct {
		status int
		code   string
	}
	invalid, missing := want{400, "invalid_request"}, want{404, "not_found"}
	other := strings.Replace(may["permissions"], "programmes:read:programmes", "engage:read:forms", 1)
	for change, want := range map[string]want{
		``:                    invalid,
		`"removeMember":null`: invalid,
		policy + `,"setLlmIntegration":{"enabled":false}`: invalid,
		`"removeMember":{}`:                                       invalid,
		`"removeMember":{"userId":7}`:                             invalid,
		`"setLlmIntegration":{}`:                                  invalid,
		`"disableModule":{"module":"volunteers"}`:                 invalid,
		strings.Replace(policy, "7", "31", 1):                     invalid,
		strings.Replace(may["permissions"], "read:", "x", 1):      invalid,
		`"removeMember":{"userId":"` + uuid.NewString() + `"}`:    missing,
		`"deleteClient":{"clientId":"` + uuid.NewString() + `"}`:  missing,
		`"deleteClient":{"clientId":"` + elsewhere + `"}`:         missing,
		`"deleteTrustedIssuer":{"id":"` + uuid.NewString() + `"}`: missing,
		`"removeMember":{"userId":"` + b.manager.String() + `"}`:  {409, "conflict"},
		other: {403, "FORBIDDEN"},
	} {
		b.Wants(change, b.send("POST", rehearsals, planned(change)), want.status, want.code)
	}
	b.Wants("no object", b.send("POST", rehearsals, `{"change":[]}`), 400, "invalid_request")
	b.Wants("elsewhere", b.Send("POST", baseOf(uuid.New())+rehearsals, planned(may["switch"]),
		apitest.Bearer(b.token)...), 403, "FORBIDDEN")
}
