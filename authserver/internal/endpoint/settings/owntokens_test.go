package settings_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const ownRevoke = "/settings/security/tokens/revoke"

// A user who may no longer create tokens can still see and revoke the existing ones, in every workspace.
func TestSecurity_RevokesTokensOfEveryWorkspace(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	site.Fixture.Join(elsewhere, ada.ID)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.personal_access_tokens set name = 'Payroll bridge', tenant_id = $1
		where user_id = $2`, elsewhere, ada.ID)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Get(developers).Wants(http.StatusForbidden)
	browser.Get("/settings/security").Says("Payroll bridge", "Hillside Youth Club", "a token", "Riverside Food Bank",
		"See programmes")
	site.SignedIn(eve).Get("/settings/security").Says("No active tokens").Lacks("Payroll bridge")
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null and user_id = $1`
	for left := 1; left >= 0; left-- {
		form := browser.Get("/settings/security").Pressed(ownRevoke)
		stranger := site.SignedIn(eve)
		others := stranger.Get("/settings/security").Form("/settings/security/sign-out-others")
		stranger.Post(ownRevoke, url.Values{"key": others["key"], "id": form["id"]}).Wants(http.StatusSeeOther)
		site.CountIs(left+1, active, ada.ID)
		browser.Post(ownRevoke, form).Follow().Says("was revoked")
		site.CountIs(left, active, ada.ID)
		browser.Post(ownRevoke, form).Follow().Says("no longer active")
	}
	site.CountIs(2, `select count(*) from account.audit_events where action = $1 and user_id = $2
		and detail->>'reason' = 'revoked_by_user' and tenant_id in ($3, $4)`, audit.TokenRevoked, ada.ID, elsewhere,
		site.Fixture.WorkspaceID)
	browser.Get("/settings/security").Says("No active tokens", "Revoked the personal access token Payroll bridge")
}

func TestSecurity_EndedTokenIsNotListed(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.personal_access_tokens set expires_at = now() where user_id = $1`, ada.ID)
	site.SignedIn(ada).Get("/settings/security").Says("No active tokens")
}

// A user without a password is not asked for one.
func TestProof_UserWithoutPasswordIsSentToReauth(t *testing.T) {
	site := own(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	browser.Get(developers).Lacks("confirm your identity")
	site.Wait(session.Freshness + time.Second)
	tokenReplacement(browser).Says("confirm your identity").Lacks("Your password")
	for _, page := range []*browsertest.Page{
		tokenReplacement(browser), browser.Get(newToken), replacement(browser), browser.Get(newApp),
	} {
		again, _ := url.Parse(page.Link("/login/again?"))
		if to := again.Query().Get("return"); to != developers+"?tenant="+site.Fixture.WorkspaceID.String() {
			t.Errorf("the reauthentication page returns to %s", to)
		}
	}
	for path, form := range map[string]url.Values{
		tokens:              tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead),
		tokens + "/replace": tokenReplacement(browser).Form(tokens + "/replace"),
		apps:                appForm(browser.Get(newApp), nil),
		apps + "/secret":    replacement(browser).Form(apps + "/secret"),
	} {
		form.Set("password", "")
		form.Set("expire_old", "yes")
		refused := browser.Post(path, form).As(path).Wants(http.StatusBadRequest, "Confirm your identity first")
		if path == apps+"/secret" {
			refused.Keeps(path, "expire_old", "yes").Contains(`id="password-` + app.ID.String() + `"`)
		}
	}
	site.Rows(1, "personal_access_tokens", "")
	site.Rows(1, "oauth_clients", "")
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, app.ID)
	events(site, 0, ada, audit.SignInFailed) // no wrong password is counted
}
