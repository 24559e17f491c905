package token_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestConnectionLog_OrphanRequestIsRecordedOnlyForItsConnector(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	answer := b.refresh("alm_rt_word")
	for range 50 {
		b.refresh("alm_rt_word")
	}
	n := b.Count(
		`select count(*) from account.connection_stops where tenant_id = $1 and client_id = $2 and user_id is null
		and stray and outcome = 'refused' and reason = $3 and request_id = $4`,
		b.Fixture.WorkspaceID,
		b.app.ID,
		answer.Text("error_description"),
		answer.Header.Get("X-Request-Id"),
	)
	if n != 1 {
		t.Errorf("%d such attempts, want only the first of a flood", n)
	}
	b.refresh("alm_rt_word", "client_id", uuid.NewString())
	b.refresh("alm_rt_word", "client_id", b.linked.ID.String())
	b.linkCode("alm_ac_word")
	b.refresh(held.Refresh, "resource", "https://elsewhere.example")
	b.given("refresh", b.refresh(held.Refresh))
	if n := b.Count(`select count(*) from account.connection_stops`); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if strings.Contains(b.Log.String(), "not recorded") {
		t.Error("an attempt that is not recorded on purpose is logged as a failure")
	}
}
