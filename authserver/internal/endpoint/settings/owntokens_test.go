package settings_test

import (
	"net/http"
	"net/url"
	"slices"
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
	t.Parallel()
	site := browsertest.Own(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	site.Fixture.Join(elsewhere, ada.ID)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.personal_access_tokens set name = 'Payroll bridge', tenant_id = $1`, elsewhere)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	if page := browser.Get(developers); page.Status != http.StatusForbidden {
		t.Fatalf("Developers: %d", page.Status)
	}
	page := browser.Get("/settings/security")
	for _, words := range []string{
		"Payroll bridge",
		"Hillside Youth Club",
		"a token",
		"Riverside Food Bank",
		"See programmes",
	} {
		if !page.HasText(words) {
			t.Errorf("does not say %q: %s", words, page.Text())
		}
	}
	if hers := site.SignedIn(eve).Get("/settings/security"); hers.HasText("Payroll bridge") ||
		!hers.HasText("No active tokens") {
		t.Errorf("another user sees: %s", hers.Text())
	}
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null and user_id = $1`
	for left := 1; left >= 0; left-- {
		form := browser.Get("/settings/security").Pressed(ownRevoke)
		stranger := site.SignedIn(eve)
		others := stranger.Get("/settings/security").Form("/settings/security/sign-out-others")
		if page := stranger.Post(ownRevoke, url.Values{
			"key": others["key"],
			"id":  form["id"],
		}); page.Status != http.StatusSeeOther {
			t.Errorf("another user: %d", page.Status)
		}
		if site.Count(active, ada.ID) != left+1 {
			t.Fatal("another user revoked the token")
		}
		if after := browser.Post(ownRevoke, form).Follow(); !after.HasText("was revoked") ||
			site.Count(active, ada.ID) != left {
			t.Errorf("%d left: %s", site.Count(active, ada.ID), after.Text())
		}
		if after := browser.Post(ownRevoke, form).Follow(); !after.HasText("no longer active") {
			t.Errorf("twice: %s", after.Text())
		}
	}
	if n := site.Count(`select count(*) from account.audit_events
		where action = '`+audit.TokenRevoked+`' and user_id = $1
		and detail->>'reason' = 'revoked_by_user' and tenant_id = any ($2)`, ada.ID, []string{
		elsewhere.String(),
		site.Fixture.WorkspaceID.String(),
	}); n != 2 {
		t.Errorf("%d events", n)
	}
	if page := browser.Get("/settings/security"); !page.HasText("No active tokens") ||
		!page.HasText("Revoked the personal access token Payroll bridge") {
		t.Errorf("afterwards: %s", page.Text())
	}
}

func TestSecurity_EndedTokenIsNotListed(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.personal_access_tokens set expires_at = now()`)
	if page := site.SignedIn(ada).Get("/settings/security"); !page.HasText("No active tokens") {
		t.Errorf("%s", page.Text())
	}
}

// A user without a password is not asked for one.
func TestProof_UserWithoutPasswordIsSentToReauth(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	if page := browser.Get(developers); page.HasText("confirm your identity") {
		t.Error("a recent authentication is not accepted")
	}
	site.Wait(session.Freshness + time.Second)
	page := tokenReplacement(browser)
	if !page.HasText("confirm your identity") || page.HasText("Your password") {
		t.Errorf("the page: %s", page.Text())
	}
	links := 0
	pages := slices.Concat(
		tokenReplacement(browser).Elements("a"),
		browser.Get(newToken).Elements("a"),
		replacement(browser).Elements("a"),
		browser.Get(newApp).Elements("a"),
	)
	for _, a := range pages {
		to, _ := url.Parse(browsertest.Attribute(a, "href"))
		if to.Path == "/login/again" &&
			to.Query().Get("return") == developers+"?tenant="+site.Fixture.WorkspaceID.String() {
			links++
		}
	}
	if links != 4 { // for a new token, its replacement, a new application, its secret
		t.Errorf("%d links to the reauthentication page", links)
	}
	for path, form := range map[string]url.Values{
		tokens:              tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead),
		tokens + "/replace": tokenReplacement(browser).Form(tokens + "/replace"),
		apps:                appForm(browser.Get(newApp), nil),
		apps + "/secret":    replacement(browser).Form(apps + "/secret"),
	} {
		form.Set("password", "")
		answer := browser.Post(path, form)
		if answer.Status != http.StatusBadRequest || !answer.HasText("Confirm your identity first") {
			t.Errorf("%s: %d %s", path, answer.Status, answer.Text())
		}
	}
	if site.Count(`select count(*) from account.personal_access_tokens`) != 1 ||
		site.Count(`select count(*) from account.oauth_clients`) != 1 ||
		site.Count(`select count(*) from account.client_secrets where client_id = $1`, app.ID) != 1 {
		t.Error("a credential was created")
	}
	if n := site.Count(`select count(*) from account.audit_events where action = $1`, audit.SignInFailed); n != 0 {
		t.Errorf("%d wrong passwords are counted", n)
	}
}
