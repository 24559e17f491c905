package token_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// recorded requires one event for the refusal of the grant, with the reason and the description that the client got.
func (b *testEnv) recorded(reason string, g grant.Grant, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status < 400 || answer.Status >= 500 {
		b.t.Fatalf("%s: %d, want a refusal", reason, answer.Status)
	}
	n := b.Count(
		`select count(*) from account.audit_events where action = '`+audit.GrantRefused+`' and subject = 'grant:' || $1
		and detail->>'reason' = $2 and detail->>'description' = $3 and detail->>'error' = $4
		and tenant_id = $5 and user_id = $6 and request_id = $7
		and actor like 'client:%' and detail->>'client_id' = $8`,
		g.ID.String(),
		reason,
		answer.Text("error_description"),
		answer.Text("error"),
		g.WorkspaceID,
		g.UserID,
		answer.Header.Get("X-Request-Id"),
		g.ClientID.String(),
	)
	if n != 1 {
		b.t.Errorf("%s: %d events, want 1 (%s)", reason, n, answer.Body)
	}
}

func (b *testEnv) refusals() int {
	b.t.Helper()
	return b.Count(`select count(*) from account.audit_events where action = '` + audit.GrantRefused + `'`)
}

func TestRefusal_IsRecordedWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, sql string }{
		{"llm_integration_off", `update account.tenant_features set enabled = false`},
		{"permissions_lost", `update account.memberships set permissions = '{engage:read:forms}'`},
		{"membership_ended", `delete from account.memberships`},
		{"user_disabled", `update account.users set disabled_at = now()`},
		{"time_over", `update account.grants set ends_at = now()`},
		{
			"disconnected_by_user",
			`update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'disconnected_by_user'`,
		},
		{"client_deleted", `update account.oauth_clients set deleted_at = now()`},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newTestEnv(t)
			held := b.Connected(b.app, b.user)
			pending, code := b.Consent(b.app, b.user)
			b.Fixture.Exec(c.sql)
			b.recorded(c.reason, held.Grant, b.refresh(held.Refresh))
			b.recorded(c.reason, pending, b.exchangeCode(code))
		})
	}
}

func TestRefusal_MismatchIsRecorded(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.recorded("request_does_not_match", held.Grant, b.refresh(held.Refresh, "resource", apitest.MCP))
	other := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()
	b.recorded("another_client", held.Grant, b.refresh(held.Refresh, "client_id", other))
	g, code := b.Consent(b.linked, b.user)
	b.recorded("request_does_not_match", g, b.linkCode(code, "client_secret", "alm_cs_wrong"))
	second := b.Refreshed(b.app, held)
	b.recorded("refresh_token_replayed", second.Grant, b.refresh(held.Refresh))
	const leaks = `select count(*) from account.audit_events
		where action = '` + audit.GrantRefused + `' and detail::text ~ 'alm_(rt|ac|cs)_'`
	if n := b.Count(leaks); n != 0 {
		t.Error("a secret is in the audit log")
	}
}

func TestRefusal_RepetitionIsRecordedOnceAnHour(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.SetLLM(false)
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() { b.refresh(held.Refresh) })
	}
	group.Wait()
	// The clock may have passed a full hour in between.
	if n := b.refusals(); n < 1 || n > 2 {
		t.Errorf("%d events of 12 refusals", n)
	}
	if strings.Contains(b.Log.String(), "not recorded") {
		t.Error("an event that exists already is logged as a failure")
	}
	b.Fixture.Exec(`update account.audit_events set at = at - interval '1 hour' where action = $1`, audit.GrantRefused)
	b.Wait(time.Hour)
	before := b.refusals()
	b.refresh(held.Refresh)
	if n := b.refusals(); n != before+1 {
		t.Errorf("an hour later: %d events, then %d", before, n)
	}
	b.Fixture.Exec(`delete from account.memberships`)
	before = b.refusals()
	b.refresh(held.Refresh)
	if n := b.refusals(); n != before+1 {
		t.Errorf("another reason: %d events, then %d", before, n)
	}
}

func TestRefusal_SuccessAndForgeryAreNotRecorded(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.given("refresh", b.refresh(held.Refresh))
	refresh := held.Refresh.Reveal()
	b.refused("forged", b.refresh("alm_rt_word"), 400, "invalid_grant")
	b.refresh(held.Refresh, "refresh_token", refresh[:len(refresh)-1])
	b.refresh(held.Refresh, "client_id", "app")
	b.refused("unsupported", b.exchange("grant_type", "password", "code", "-"), 400, "unsupported_grant_type")
	if n := b.refusals(); n != 0 {
		t.Errorf("%d events", n)
	}
}

func TestRefusal_FailedRecordDoesNotChangeResponse(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.SetLLM(false)
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `lock table account.audit_events in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	b.refused("while the audit log is locked", b.refresh(held.Refresh), 400, "invalid_grant")
	if !strings.Contains(b.Log.String(), "token refusal not recorded") {
		t.Error("the log does not report the failure")
	}
}

func TestRefusal_OfDeletedGrantIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.Exec(`delete from account.grants`)
	b.refused("gone", b.refresh(held.Refresh), 400, "invalid_grant")
	b.refused("gone, unknown client", b.refresh(held.Refresh, "client_id", uuid.NewString()), 400, "invalid_client")
	if n := b.refusals(); n != 0 {
		t.Errorf("%d events", n)
	}
}

// Requests with made-up client ids must not fill the recorder's memory, or it would record no one else's attempts.
func TestConnectionLog_MadeUpClientIDsDoNotSilenceIt(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	refresh := func(name string) {
		_, err := b.Engine.Token(t.Context(), engine.TokenRequest{
			Dialect:   engine.Form,
			GrantType: "refresh_token",
			ClientID:  name,
			Parameters: map[string]credential.Secret{
				"refresh_token": "made up",
				"resource":      credential.Secret(b.app.Resource),
			},
		})
		if refused, ok := errors.AsType[*engine.TokenError](err); !ok {
			t.Error(refused, err)
		}
	}
	var strangers sync.WaitGroup
	for range 8 {
		strangers.Go(func() {
			for range 600 {
				refresh(uuid.NewString())
			}
		})
	}
	strangers.Wait()
	refresh(b.app.ID.String())
	if n := b.Count(`select count(*) from account.connection_stops where client_id = $1`, b.app.ID); n != 1 {
		t.Errorf("%d attempts were recorded, want 1", n)
	}
}
