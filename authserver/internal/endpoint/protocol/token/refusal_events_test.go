package token_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
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

func TestRefusal_MismatchIsRecorded(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	b.recorded("request_does_not_match", held.Grant, b.refresh(held.Refresh, "resource", apitest.MCP))
	b.WantsRows("secrets in the audit log", 0, `account.audit_events
		where action = '`+audit.GrantRefused+`' and detail::text ~ 'alm_(rt|ac|cs)_'`)
}

func TestRefusal_ConcurrentOnesAreRecordedOnce(t *testing.T) {
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
