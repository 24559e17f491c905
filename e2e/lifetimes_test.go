package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 5.2 and 8, contract section 3: lifetimes, and the checks of the user at refresh.

// In the last seconds of the 30 days a request gets tokens or invalid_grant, never a server error.
func TestLifetimes_LastSecondsOfGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	wantsEither := func(answer harness.Answer, left time.Duration) {
		t.Helper()
		if answer.Status != http.StatusOK {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			return
		}
		if tokens := answer.Tokens(t); tokens.ExpiresIn < 0 || tokens.ExpiresIn > int(left.Seconds()) {
			t.Errorf("%s before the end: expires_in is %d", left, tokens.ExpiresIn)
		}
	}
	for _, left := range []time.Duration{2 * time.Second, time.Second, time.Millisecond, 0} {
		tokens := connector.Connect(t, owner)
		p.Database.EndGrantIn(t, harness.GrantOf(t, tokens.AccessToken), left)
		wantsEither(connector.Refresh(t, tokens.RefreshToken), left)
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		pending := p.Database.Text(t, `select id::text from account.grants where client_id = $1 and state = 'pending'
						order by created_at desc limit 1`, connector.ClientID)
		p.Database.EndGrantIn(t, pending, left)
		wantsEither(attempt.Post(t, form), left)
	}
}

// "A permission lost meanwhile is simply without effect (section 6), and back when the user has it back."
func TestRefresh_LostPermissionReturnsWithUser(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	create := func() harness.Answer {
		return p.In(ws.Workspace, tokens.AccessToken).
			JSON(t, http.MethodPost, programmes, map[string]any{"name": "Warm room"})
	}
	create().Wants(t, http.StatusCreated)
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
	create().Wants(t, http.StatusCreated)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	if !strings.Contains(tokens.Scope, harness.WriteProgrammes) {
		t.Errorf("the scope is %q after the permission was restored", tokens.Scope)
	}
}
