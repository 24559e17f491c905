package authorize_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

func deny(page *browsertest.Page) *browsertest.Page {
	return page.Send("/oauth/authorize", browsertest.Fields{"decision": "deny"})
}

func TestDenial_SendsAccessDenied(t *testing.T) {
	site := shared(t)
	_, page := opened(site)
	query := callback(t, deny(page))
	if query.Get("error") != "access_denied" || query.Get("state") != state || query.Get("iss") != browsertest.Issuer ||
		query.Has("code") {
		t.Errorf("%v", query)
	}
	site.Rows(0, "grants", "")
}

func TestDenial_AfterApprovalInvalidatesUnusedCode(t *testing.T) {
	site := shared(t)
	app, page := opened(site)
	code := callback(t, approve(page)).Get("code")
	if callback(t, deny(page)).Get("error") != "access_denied" {
		t.Error("the denial was not sent")
	}
	if _, err := redeem(site, app, code, ""); err == nil {
		t.Error("the code still works")
	}
}

// The code is redeemed while a denial of the same page waits for the grant: the denial gets a 409 and does not end the
// grant.
func TestDenial_RacingRedemptionConflicts(t *testing.T) {
	site := shared(t)
	_, page := opened(site)
	approve(page)
	redemption, err := site.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = redemption.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := redemption.Exec(t.Context(), `update account.grants
		set state = 'active', generation = 1 where tenant_id = $1`, site.Fixture.WorkspaceID); err != nil {
		t.Fatal(err)
	}
	answer := make(chan *browsertest.Page)
	go func() { answer <- deny(page) }()
	const waiting = `select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))`
	await.True(t, "the denial waits", func() bool {
		return site.Count(waiting, redemption.Conn().PgConn().PID()) > 0
	})
	if err := redemption.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	(<-answer).Wants(http.StatusConflict).LeadsTo("")
	site.Rows(1, "grants", `state = 'active'`)
}
