package api_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
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
			if !strings.Contains(answer.Body, "account:write:members") {
				t.Errorf("%s: the refusal does not name the permission\n%s", what, b.Explain(answer))
			}
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

// Without account:read:members, a caller learns of the requests of their own credentials alone.
func TestRehearsals_CountRequestsThatCallerMaySee(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead, perm.ProgrammesWrite)
	held, _ := b.connect(user)
	b.Fixture.Exec(`update account.usage set credential_id = $2 where credential_id = $1`,
		b.used(user, "connection", "listProgrammes", 0), held.Grant.ID)
	deletion := planned(`"deleteClient":{"clientId":"` + held.Grant.ClientID.String() + `"}`)
	const none = `"refused":{"requests":0,"byOperation":[]}`
	const five = `"refused":{"requests":5,"byOperation":[{"operation":"listProgrammes","requests":5,"credentials":1}]}`
	for who, c := range map[string]struct {
		token credential.Secret
		want  string
	}{
		"manager":   {b.token, five},
		"registrar": {b.Fixture.Token(b.manager, perm.AccountAPIAccess), none},
		"user":      {b.Fixture.Token(user, perm.AccountAPIAccess), five},
	} {
		answer := b.as(c.token, "POST", rehearsals, deletion)
		b.Wants(who, answer, 200, "")
		ends := `"ends":{"connections":["` + held.Grant.ID.String() + `"]`
		if !strings.Contains(answer.Body, ends) || !strings.Contains(answer.Body, c.want) {
			t.Errorf("%s: %s", who, answer.Body)
		}
	}
}

// A workspace has 16 rehearsals in flight at most. A change whose effect Postgres cannot find in time is 503, and one
// that concerns too many credentials 409.
func TestRehearsals_AreLimited(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	const inFlight, more = 16, 4
	release := b.Lock("lock table account.webhooks in access exclusive mode")
	answers := make(chan apitest.Answer, inFlight+more)
	for i := range inFlight + more {
		if i%8 == 0 { // a credential has 8 requests at once at most
			b.token = b.Fixture.Token(b.manager, held...)
		}
		token := b.token
		go func() { answers <- b.as(token, "POST", rehearsals, planned(`"setLlmIntegration":{"enabled":false}`)) }()
	}
	for range more {
		refused := <-answers
		b.Wants("more than the bound", refused, 429, "rate_limited")
		b.WantsHeader("more than the bound", refused, "Retry-After", "3")
	}
	release()
	ended := map[int]int{}
	for range inFlight { // a slow machine refuses those that wait too long
		ended[(<-answers).Status]++
	}
	if ended[200] == 0 || ended[200]+ended[429] != inFlight {
		t.Errorf("statuses %v", ended)
	}
	b.Fixture.Exec(`create function account.slow() returns trigger language plpgsql as
		$$begin raise exception 'canceled' using errcode = 'query_canceled'; end$$`)
	b.Fixture.Exec(`create trigger slow before insert on account.connector_policies
		for each row execute function account.slow()`)
	answer := b.send("POST", rehearsals, planned(`"setConnectorPolicy":{"permissions":["programmes:read:programmes"],`+
		`"platforms":["claude"],"days":7}`))
	b.Wants("too slow", answer, 503, "temporarily_unavailable")
	if !strings.Contains(answer.Body, "It takes too long now") ||
		strings.Contains(b.Log.String(), "store unavailable") {
		t.Error(b.Explain(answer))
	}
	b.Fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
			expires_at)
		select gen_random_uuid(), sha256(n::text::bytea), $1, $2, 'import', '{}', now() + interval '1 day'
		from generate_series(1, $3) n`, b.manager, b.Fixture.WorkspaceID, rehearsal.MaxCredentials)
	answer = b.send("POST", rehearsals, planned(`"setLlmIntegration":{"enabled":false}`))
	b.Wants("too many", answer, 409, "conflict")
}
