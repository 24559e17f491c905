package token_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// recorded requires one event for the refusal of the grant, with the reason and the description that the client got.
func (b *testEnv) recorded(reason string, g grant.Grant, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status < 400 || answer.Status >= 500 {
		b.t.Fatalf("%s: want a refusal\n%s", reason, b.Explain(answer))
	}
	b.WantsRows(reason, 1, `account.audit_events where action = '`+audit.GrantRefused+`' and subject = 'grant:' || $1
		and detail->>'reason' = $2 and detail->>'description' = $3 and detail->>'error' = $4 and tenant_id = $5
		and user_id = $6 and request_id = $7 and actor like 'client:%' and detail->>'client_id' = $8`,
		g.ID.String(), reason, answer.Text("error_description"), answer.Text("error"), g.WorkspaceID, g.UserID,
		answer.Header.Get("X-Request-Id"), g.ClientID.String())
}

// refusals counts the events of refusals in the workspace.
func (b *testEnv) refusals() int {
	b.t.Helper()
	return b.Count(`select count(*) from account.audit_events where tenant_id = $1
		and action = '`+audit.GrantRefused+`'`, b.Fixture.WorkspaceID)
}

func TestRefusal_IsRecordedWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, words, sql string }{
		{"llm_integration_off", "LLM integration", `account.tenant_features set enabled = false`},
		{"permissions_lost", "permissions", `account.memberships set permissions = '{engage:read:forms}'`},
		{"membership_ended", "no longer a member", ""},
		{"user_disabled", "disabled", ""},
		{"time_over", "access that the user approved has expired", `account.grants set ends_at = now()`},
		{"disconnected_by_user", "The user disconnected this application on ", ""},
		{"client_deleted", "The client is unknown", `account.oauth_clients set deleted_at = now()`},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newTestEnv(t)
			held := b.connected()
			pending, code := b.Consent(b.app, b.user)
			switch c.reason {
			case "disconnected_by_user":
				b.disconnect(held.Grant)
				b.disconnect(pending)
			case "membership_ended":
				b.endMembership()
			case "user_disabled":
				b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
			default:
				b.Fixture.Exec(`update `+c.sql+` where tenant_id = $1`, b.Fixture.WorkspaceID)
			}
			answer := b.refresh(held.Refresh)
			b.recorded(c.reason, held.Grant, answer)
			b.Contains(c.reason, answer.Text("error_description"), c.words)
			b.recorded(c.reason, pending, b.exchangeCode(code))
		})
	}
}

func TestRefusal_MismatchIsRecorded(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	b.recorded("request_does_not_match", held.Grant, b.refresh(held.Refresh, "resource", apitest.MCP))
	b.recorded("another_client", held.Grant, b.refresh(held.Refresh, "client_id", b.stranger()))
	g, code := b.Consent(b.linked, b.user)
	b.recorded("request_does_not_match", g, b.linkCode(code, "client_secret", apitest.WrongSecret))
	second := b.Refreshed(b.app, held)
	b.recorded("refresh_token_replayed", second.Grant, b.refresh(held.Refresh))
	b.WantsRows("secrets in the audit log", 0, `account.audit_events
		where action = '`+audit.GrantRefused+`' and detail::text ~ 'alm_(rt|ac|cs)_'`)
}

func TestRefusal_RepetitionIsRecordedOnceAnHour(t *testing.T) {
	b := inTurn(t)
	held := b.connected()
	b.Fixture.SetLLM(false)
	before := b.Log.String()
	refresh := func() apitest.Answer { return b.refresh(held.Refresh) }
	atOnce(slices.Repeat([]func() apitest.Answer{refresh}, 12)...)
	if strings.Contains(strings.TrimPrefix(b.Log.String(), before), "not recorded") {
		t.Error("an event that exists already is logged as a failure")
	}
	// The clock may have passed a full hour in between.
	if n := b.refusals(); n < 1 || n > 2 {
		t.Errorf("%d events of 12 refusals", n)
	}
	again := func(what string) {
		t.Helper()
		before := b.refusals()
		b.refresh(held.Refresh)
		b.Equal(what, b.refusals(), before+1)
	}
	b.Fixture.Exec(`update account.audit_events set at = at - interval '1 hour' where action = $1`, audit.GrantRefused)
	b.Wait(time.Hour)
	again("an hour later")
	b.endMembership()
	again("another reason")
}

func TestRefusal_SuccessAndForgeryAreNotRecorded(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	b.given("refresh", b.refresh(held.Refresh))
	refresh := held.Refresh.Reveal()
	b.Wants("forged", b.refresh("alm_rt_word"), 400, "invalid_grant")
	b.Wants("cut", b.refresh(credential.Secret(refresh[:len(refresh)-1])), 400, "invalid_grant")
	b.Wants("no client", b.refresh(held.Refresh, "client_id", "app"), 400, "invalid_client")
	b.Wants("unsupported", b.exchange("grant_type", "password", "code", "-"), 400, "unsupported_grant_type")
	gone := b.connected()
	b.Fixture.Exec(`delete from account.grants where id = $1`, gone.Grant.ID)
	b.Wants("gone", b.refresh(gone.Refresh), 400, "invalid_grant")
	b.Wants("gone, unknown client", b.refresh(gone.Refresh, "client_id", uuid.NewString()), 400, "invalid_client")
	b.Equal("events", b.refusals(), 0)
}

func TestRefusal_FailedRecordDoesNotChangeResponse(t *testing.T) {
	b := impatiently(t)
	held := b.connected()
	b.Fixture.SetLLM(false)
	b.Lock(`lock table account.audit_events in access exclusive mode`)
	before := b.Log.String()
	b.Wants("while the audit log is locked", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Contains("the log", strings.TrimPrefix(b.Log.String(), before), "token refusal not recorded")
}

// Requests with made-up client ids must not fill the recorder's memory, or it would record no one else's attempts.
func TestConnectionLog_MadeUpClientIDsDoNotSilenceIt(t *testing.T) {
	b := inTurn(t)
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
			for range 600 { // together more than it remembers
				refresh(uuid.NewString())
			}
		})
	}
	strangers.Wait()
	refresh(b.name)
	b.WantsRows("attempts", 1, `account.connection_stops where client_id = $1`, b.app.ID)
}

func TestConnectionLog_OrphanRequestIsRecordedOnlyForItsConnector(t *testing.T) {
	b := inTurn(t) // the log of a failed record does not name its request
	held := b.connected()
	before := b.Log.String()
	first := b.refresh("alm_rt_word")
	for range 50 {
		b.refresh("alm_rt_word")
	}
	b.WantsRows("such attempts, only the first of a flood", 1, `account.connection_stops where tenant_id = $1
		and client_id = $2 and user_id is null and stray and outcome = 'refused' and reason = $3 and request_id = $4`,
		b.Fixture.WorkspaceID, b.app.ID, first.Text("error_description"), first.Header.Get("X-Request-Id"))
	b.refresh("alm_rt_word", "client_id", uuid.NewString())
	b.refresh("alm_rt_word", "client_id", b.linked.ID.String())
	b.linkCode("alm_ac_word")
	b.refresh(held.Refresh, "resource", "https://elsewhere.example")
	b.given("refresh", b.refresh(held.Refresh))
	b.WantsRows("attempts", 1, `account.connection_stops where tenant_id = $1`, b.Fixture.WorkspaceID)
	if strings.Contains(strings.TrimPrefix(b.Log.String(), before), "not recorded") {
		t.Error("an attempt that is not recorded on purpose is logged as a failure")
	}
}
