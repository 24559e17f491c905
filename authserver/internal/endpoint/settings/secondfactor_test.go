package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const secondFactor = members + "/second-factor"

func requireFactor(site *browsertest.Server) {
	site.Fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`,
		site.Fixture.WorkspaceID)
}

func administrator(site *browsertest.Server) browsertest.Person {
	return site.Member(perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
}

func addPasskey(site *browsertest.Server, user browsertest.Person) {
	key := uuid.New()
	site.Fixture.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
		transports, backup_eligible, backed_up) values ($1, $2, 'Key', $3, '\x01', 0, '\x00', '{}', false, false)`,
		key, user.ID, key[:])
}

func consentPath(site *browsertest.Server) string {
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	return "/oauth/authorize?" + url.Values{
		"client_id":    {program.ID.String()},
		"redirect_uri": {program.Redirects[0]},
		"state":        {"s"},
	}.Encode()
}

func TestSecondFactor_OnlyUserWithOneRequiresIt(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Get(members).Wants(http.StatusOK, "2 members have neither a passkey nor an authenticator app.",
		"Not required", "To require it, sign in with a second factor yourself")
	form := browser.Get(members + "/invite").Form(members + "/invite")
	form.Set("state", "on")
	browser.Post(secondFactor, form).Wants(http.StatusForbidden, "Nothing was changed.",
		"sign in with a second factor yourself")
	reader := site.SignedIn(site.Member(perm.AccountReadMembers))
	reader.Get(members).Lacks("have neither")
	reader.Post(secondFactor, form).Wants(http.StatusForbidden)
	withApp(t, browser)
	changed := browser.Get(members).Send(secondFactor, nil)
	changed.Follow().Wants(http.StatusOK, "need a second factor now", "Required",
		"2 members have neither") // the reader and the other member
	site.CountIs(1, `select count(*) from account.audit_events where action = $1 and tenant_id = $2 and user_id = $3
		and detail->>'state' = 'on'`, audit.SecondFactorChanged, site.Fixture.WorkspaceID, ada.ID)
	browser.Get(members).Send(secondFactor, nil).Follow().Wants(http.StatusOK, "no longer need")
}

// Each page and form of a workspace that requires a second factor refuses a sign-in with the password alone, and has a
// link to a second factor that returns to the page. Existing tokens keep working.
func TestSecondFactor_EveryEntryRequiresIt(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	browser := site.SignedIn(ada)
	consent := consentPath(site)
	approval := browser.Get(consent).Form("/oauth/authorize")
	approval.Set("decision", "approve")
	token := tokenForm(browser.Get(newToken), "T", "7", perm.ProgrammesRead)
	invitation := browser.Get(members + "/invite").Form(members + "/invite")
	invitation.Set("email", "sam@example.org")
	invitation.Set("permissions", "programmes:read:programmes")
	existing := site.Fixture.Token(ada.ID, perm.AccountAPIAccess, perm.AccountReadMembers)
	requireFactor(site)
	for _, path := range []string{consent, members, developers, connectors, "/settings/audit"} {
		page := browser.Get(path)
		page.Wants(http.StatusForbidden, "Riverside Food Bank requires a second factor", "You have neither yet.")
		link := authenticatorPath + "?return=" + url.QueryEscape(path)
		if found := page.Links(authenticatorPath); len(found) != 1 || found[0] != link {
			t.Errorf("%s leads to %v, want %s", path, found, link)
		}
	}
	for path, form := range map[string]url.Values{
		"/oauth/authorize": approval, tokens: token, members + "/invite": invitation,
	} {
		browser.Post(path, form).Wants(http.StatusForbidden, "requires a second factor", "Nothing was changed.")
	}
	site.Rows(0, "grants", "")
	site.Rows(0, "invitations", "")
	site.Rows(1, "personal_access_tokens", "") // the existing one
	list := "/v1/account/tenants/" + site.Fixture.WorkspaceID.String() + "/members"
	answer := site.Send("GET", list, "", apitest.Bearer(existing)...)
	if status := answer.Status; status != http.StatusOK {
		t.Errorf("an existing token: %d %s", status, answer.Body)
	}
	browser.Get("/settings/user").Wants(http.StatusOK, "Riverside Food Bank")
	other := site.Fixture.Workspace("Zebra Crossing Club")
	site.Fixture.Join(other, ada.ID, perm.AccountReadMembers)
	elsewhere := browser.Get(members).Links(members + "?tenant=" + other.String())
	if len(elsewhere) != 1 || browser.Get(elsewhere[0]).Status != http.StatusOK {
		t.Errorf("the workspace without the requirement cannot be reached: %v", elsewhere)
	}

	browser.Get(authenticatorPath+"?return="+url.QueryEscape(consent)).Keeps(authenticatorPath, "return", consent)
	browser.Get(authenticatorPath+"?return=https://evil.example/").Keeps(authenticatorPath, "return", "")
	long := consent + "&surplus=" + strings.Repeat("x", 2000) // too long for the URL of another page
	waiting := browser.Get(long)
	waiting.Wants(http.StatusForbidden, "come back to this page and continue")
	if found := waiting.Links(authenticatorPath); len(found) != 1 || found[0] != authenticatorPath {
		t.Errorf("a long request leads to %v", found)
	}
	withApp(t, browser)
	resumed := waiting.Links("/oauth/authorize")
	if len(resumed) != 1 || resumed[0] != long {
		t.Fatalf("a long request is continued at %v", resumed)
	}
	browser.Get(resumed[0]).Wants(http.StatusOK, "asks for access")
	browser.Get(consent).Wants(http.StatusOK, "asks for access")
	browser.Post("/oauth/authorize", approval).Wants(http.StatusSeeOther)
	here := members + "?tenant=" + site.Fixture.WorkspaceID.String()
	browser.Get(here).Wants(http.StatusOK, "Required")
}

// With only the password of a user who has a passkey, a thief can neither add a second factor nor remove the passkey.
func TestSecondFactor_PasswordAloneDoesNotReplaceIt(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	thief := site.SignedIn(ada)
	setup := thief.Get(authenticatorPath).Form(authenticatorPath)
	addPasskey(site, ada)
	requireFactor(site)
	page := thief.Get(members)
	page.Wants(http.StatusForbidden, "You signed in with your password alone.")
	if found := page.Links("/login/again"); len(found) != 1 || len(page.Links(authenticatorPath)) != 0 {
		t.Errorf("the page leads to %v", found)
	}
	thief.Get(authenticatorPath).Says("confirm your identity first")
	setup.Set("code", "000000")
	thief.Post(authenticatorPath, setup).Follow().Wants(http.StatusOK, "Nothing was changed.")
	again := thief.Get("/login/again?return=/settings/members")
	again.Lacks("Enter your password again")
	if len(again.Links("/login/forgotten")) != 1 { // this deployment offers no passkeys
		t.Errorf("the page does not lead on: %s", again.Text())
	}
	thief.Post("/login/again", url.Values{"password": {browsertest.Password}, "return": {members}})
	thief.Get(members).Wants(http.StatusForbidden, "You signed in with your password alone.")
}

// That holds for each change of how the user signs in, although no workspace requires a second factor.
func TestSecondFactor_PasswordAloneChangesNoFactor(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	thief := site.SignedIn(ada)
	const password = "/settings/security/password"
	changed, setup := thief.Get(password).Form(password), thief.Get(authenticatorPath).Form(authenticatorPath)
	addPasskey(site, ada)
	for _, path := range []string{password, authenticatorPath} {
		if page := thief.Get(path); len(page.Links("/login/again")) == 0 ||
			strings.Contains(page.Body, `name="code"`) || strings.Contains(page.Body, `name="new-password"`) {
			t.Errorf("%s does not ask for the second factor: %s", path, page.Text())
		}
	}
	changed.Set("password", browsertest.Password)
	changed.Set("new-password", "another lengthy passphrase")
	thief.Post(password, changed).Wants(http.StatusBadRequest, "confirm your identity first")
	setup.Set("code", "000000")
	thief.Post(authenticatorPath, setup).Follow().Wants(http.StatusOK, "Nothing was changed.")
	thief.Get("/login/again?return="+password).Wants(http.StatusOK, "You signed in with your password alone.")
}
