package token_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestExchange_SecondUseOfCodeRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	first := b.exchangeCode(code)
	b.given("first", first)
	b.refused(
		"with another verifier",
		b.exchangeCode(code, "code_verifier", strings.Repeat("a", 43)),
		400,
		"invalid_grant",
	)
	b.refused("with another resource", b.exchangeCode(code, "resource", apitest.MCP), 400, "invalid_target")
	b.refused(
		"by another client",
		b.exchangeCode(code, "client_id", b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()),
		400,
		"invalid_grant",
	)
	b.wantActive("after second exchanges that are not valid", g)
	b.refused("second", b.exchangeCode(code), 400, "invalid_grant")
	b.wantRevoked("second", g, grant.CodeReused)

	g, code = b.Consent(b.linked, b.user)
	b.given("first in JSON", b.linkCode(code))
	b.refused("with a wrong secret", b.linkCode(code, "client_secret", "alm_cs_wrong"), 400, "invalid_client")
	b.wantActive("after a wrong secret", g)
	b.refused("second in JSON", b.linkCode(code), 400, "invalid_grant")
	b.wantRevoked("second in JSON", g, grant.CodeReused)
}

func TestExchange_FifthMismatchRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	stranger := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()
	for range 6 {
		b.refused("another client does not count", b.exchangeCode(code, "client_id", stranger), 400, "invalid_grant")
	}
	b.refused("1", b.exchangeCode(code, "redirect_uri", "https://example.org"), 400, "invalid_grant")
	b.refused("2", b.exchangeCode(code, "code_verifier", "x"), 400, "invalid_grant")
	b.refused("3", b.exchangeCode(code, "resource", apitest.MCP), 400, "invalid_target")
	b.refused("4", b.exchangeCode(code, "resource", apitest.MCP), 400, "invalid_target")
	b.wantActive("after four", g)
	b.refused("5", b.exchangeCode(code, "code_verifier", "x"), 400, "invalid_grant")
	b.wantRevoked("after five", g, grant.CodeGuessed)
	b.refused("the right one, too late", b.exchangeCode(code), 400, "invalid_grant")

	_, code = b.Consent(b.app, b.user)
	b.exchangeCode(code, "code_verifier", "x")
	b.given("after one mismatch", b.exchangeCode(code))
}

func TestRefresh_SupersededTokenRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for what, changes := range map[string][]string{
		"as it was":             nil,
		"with a wrong resource": {"resource", apitest.MCP},
	} {
		held := b.Connected(b.app, b.user)
		second := b.Refreshed(b.app, held)
		b.refused(what, b.refresh(held.Refresh, changes...), 400, "invalid_grant")
		b.wantRevoked(what, held.Grant, grant.Replayed)
		b.refused("the current one then", b.refresh(second.Refresh), 400, "invalid_grant")
	}
	held := b.Connected(b.app, b.user)
	second := b.Refreshed(b.app, held)
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
	b.refused("superseded and no longer a member", b.refresh(held.Refresh), 400, "invalid_grant")
	b.wantRevoked("superseded and no longer a member", second.Grant, grant.Replayed)
}

func TestRefresh_RefusalConsumesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.refused("a wrong resource", b.refresh(held.Refresh, "resource", apitest.MCP), 400, "invalid_target")
	b.refused(
		"another client",
		b.refresh(held.Refresh, "client_id", b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()),
		400,
		"invalid_grant",
	)
	b.Fixture.SetLLM(false)
	b.refused("LLM integration off", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Fixture.SetLLM(true)
	b.Fixture.Exec(`update account.memberships set permissions = '{engage:read:forms}' where user_id = $1`, b.user)
	b.refused("no permission left", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Fixture.Exec(
		`update account.memberships set permissions = '{programmes:read:programmes}' where user_id = $1`,
		b.user,
	)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
	b.refused("a disabled user", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Fixture.Exec(`update account.users set disabled_at = null where id = $1`, b.user)
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
	b.refused("no member", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead)
	b.given("the same token afterwards", b.refresh(held.Refresh))
}

func TestExchange_RefusalConsumesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	b.Fixture.SetLLM(false)
	b.refused("LLM integration off", b.exchangeCode(code), 400, "invalid_grant")
	_, other := b.Consent(b.linked, b.user)
	b.given("confidential client, LLM integration off", b.linkCode(other))
	b.Fixture.SetLLM(true)
	b.Fixture.Exec(`update account.memberships set permissions = '{}' where user_id = $1`, b.user)
	b.refused("no permission left", b.exchangeCode(code), 400, "invalid_grant")
	b.refused("no permission left in JSON", b.linkCode(linked), 400, "invalid_grant")
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
	b.refused("no member", b.exchangeCode(code), 400, "invalid_grant")
	b.refused("no member in JSON", b.linkCode(linked), 400, "invalid_grant")
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead)
	b.given("the same code afterwards", b.exchangeCode(code))
	b.given("the same code in JSON afterwards", b.linkCode(linked))
}

func TestRefresh_RefusalDescribesCause(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	for _, c := range []struct{ sql, undo, words string }{
		{
			`update account.tenant_features set enabled = false`,
			`update account.tenant_features set enabled = true`,
			"LLM integration",
		},
		{
			`update account.memberships set permissions = '{}'`,
			`update account.memberships set permissions = '{programmes:read:programmes}'`,
			"permissions",
		},
		{`update account.users set disabled_at = now()`, `update account.users set disabled_at = null`, "disabled"},
		{
			`update account.grants set ends_at = now()`,
			`update account.grants set ends_at = now() + interval '1 day'`,
			"access that the user approved has expired",
		},
		{`delete from account.memberships`, ``, "no longer a member"},
		{
			`update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'disconnected_by_user'`,
			``,
			"The user disconnected this application on ",
		},
	} {
		b.Fixture.Exec(c.sql)
		answer := b.refresh(held.Refresh)
		b.refused(c.words, answer, 400, "invalid_grant")
		if !strings.Contains(answer.Text("error_description"), c.words) {
			t.Errorf("%q does not say %q", answer.Text("error_description"), c.words)
		}
		if c.undo != "" {
			b.Fixture.Exec(c.undo)
		}
	}
}

func TestToken_ConcurrentRequestsHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	race := func(what string, g grant.Grant, reason grant.Reason, try func() apitest.Answer) {
		statuses := make([]int, 8)
		var group sync.WaitGroup
		for i := range statuses {
			group.Go(func() { statuses[i] = try().Status })
		}
		group.Wait()
		won := 0
		for _, status := range statuses {
			if status == 200 {
				won++
			} else if status != 400 {
				t.Errorf("%s: a losing request got %d", what, status)
			}
		}
		if won != 1 {
			t.Errorf("%s: %d winners", what, won)
		}
		b.wantRevoked(what, g, reason)
	}
	for range 5 {
		g, code := b.Consent(b.app, b.user)
		race("exchange", g, grant.CodeReused, func() apitest.Answer { return b.exchangeCode(code) })
		held := b.Connected(b.app, b.user)
		race("refresh", held.Grant, grant.Replayed, func() apitest.Answer { return b.refresh(held.Refresh) })
	}
}

func TestToken_OutageIs503AndChangesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	attempt := func(what string) {
		t.Helper()
		for _, answer := range []apitest.Answer{b.exchangeCode(code), b.linkCode(linked), b.refresh(held.Refresh)} {
			b.refused(what, answer, 503, "temporarily_unavailable")
			if answer.Header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", what)
			}
		}
	}
	restore := b.CutPostgres()
	attempt("Postgres away")
	b.refused("an unknown client during an outage", b.exchangeUnknown(), 503, "temporarily_unavailable")
	restore()
	b.Redis.Kill()
	attempt("Redis away")
	if err := b.Redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.given("the code afterwards", b.exchangeCode(code))
	b.given("the code in JSON afterwards", b.linkCode(linked))
	b.given("the refresh token afterwards", b.refresh(held.Refresh))
}

// exchangeUnknown sends an unknown code from an unknown client.
func (b *testEnv) exchangeUnknown() apitest.Answer {
	b.t.Helper()
	return b.exchangeCode("alm_ac_word", "client_id", uuid.NewString())
}

func TestExchange_WithoutSigningKeyConsumesNothing(t *testing.T) {
	t.Parallel()
	b := &testEnv{Server: startWithoutKeys(t), t: t}
	b.user = b.Fixture.Member(perm.ProgrammesRead)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	_, code := b.Consent(b.app, b.user)
	if answer := b.exchangeCode(code); answer.Status < 500 {
		t.Errorf("without a key: %d %s", answer.Status, answer.Body)
	}
	restoreKeys(b.Server)
	b.given("with a key", b.exchangeCode(code))
}

// age makes the code of a pending grant older by seconds, in Redis, where its lifetime is stored.
func (b *testEnv) age(g grant.Grant, seconds int) {
	b.t.Helper()
	key := "g:{" + g.ID.String() + "}"
	if err := b.Parts.Redis.HIncrBy(b.t.Context(), key, "cx", -1000*int64(seconds)).Err(); err != nil {
		b.t.Fatal(err)
	}
}

func TestExchange_CodeExpiresAfter60Seconds(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	b.age(g, 61)
	b.refused("an old code", b.exchangeCode(code), 400, "invalid_grant")
	g, code = b.Consent(b.app, b.user)
	b.age(g, 50)
	b.given("a code of 50 seconds", b.exchangeCode(code))
}
