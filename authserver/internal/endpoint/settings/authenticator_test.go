package settings_test

import (
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const authenticatorPath = "/settings/security/authenticator"

// withApp sets an authenticator app up with the code of this moment. It returns the app's secret, the moment, and the
// recovery codes.
func withApp(t *testing.T, b *browsertest.Browser) (authenticator.Secret, time.Time, []string) {
	t.Helper()
	page := b.Get(authenticatorPath)
	key := strings.ReplaceAll(page.Attribute("#setup-key", "value"), " ", "")
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(key)
	if err != nil || len(secret) != 20 {
		t.Fatalf("the key has %d bytes, %v", len(secret), err)
	}
	now := time.Now()
	page.Send(authenticatorPath, browsertest.Fields{"code": "000000"}).
		Wants(http.StatusBadRequest, "The code is incorrect").Selects("input[name=setup]:not([value=''])")
	done := page.Send(authenticatorPath, browsertest.Fields{"code": codeOf(t, secret, now)})
	codes := codesOn(done)
	if done.Status != http.StatusOK || len(codes) != 10 || done.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d with %d codes", done.Status, len(codes))
	}
	return secret, now, codes
}

// codesOn returns the recovery codes that a page shows.
func codesOn(page *browsertest.Page) (codes []string) {
	for _, shown := range page.Elements("textarea") {
		if browsertest.Attribute(shown, "id") == "recovery-codes" {
			codes = append(codes, strings.Fields(browsertest.TextOf(shown))...)
		}
	}
	return codes
}

func codeOf(t *testing.T, secret authenticator.Secret, at time.Time) string {
	t.Helper()
	code, err := secret.Code(at)
	must(t, err)
	return code
}

// password sends the right password and returns the page that follows.
func password(b *browsertest.Browser, who browsertest.Person) *browsertest.Page {
	return b.Post("/login",
		url.Values{"email": {who.Email}, "password": {browsertest.Password}, "return": {"/settings/apps"}})
}

func TestAuthenticator_PasswordNeedsCode(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	secret, now, recovery := withApp(t, site.SignedIn(ada))

	b := site.Browser()
	asked := password(b, ada).Wants(http.StatusOK, "Enter a code")
	const path = "/login/code"
	for name, code := range map[string]string{
		"wrong":                 "000000",
		"the code of the setup": codeOf(t, secret, now),
		"empty":                 "",
	} {
		asked.Send(path, browsertest.Fields{"code": code}).As(name).Wants(http.StatusBadRequest)
		if signedIn(b) {
			t.Errorf("%s: signed in", name)
		}
	}
	next := codeOf(t, secret, now.Add(30*time.Second))
	asked.Send(path, browsertest.Fields{"code": next}).LeadsTo("/settings/apps").Follow().Wants(http.StatusOK)
	password(site.Browser(), ada).Send(path, browsertest.Fields{"code": next}).Wants(400)

	third := site.Browser()
	first := browsertest.Fields{"code": strings.ToUpper(recovery[0])}
	password(third, ada).Send(path, first).LeadsTo("/settings/apps").Follow().Wants(http.StatusOK)
	password(site.Browser(), ada).Send(path, first).Wants(400)
	third.Get("/settings/security").Says("Manage the app", "Two-step sign-in on", "You used a recovery code")
	third.Get("/settings/security/events").Says("You set up an authenticator app")
	third.Get(authenticatorPath).Says("You have 9 unused recovery codes")
	events(site, 4, ada, audit.CodeFailed)
}

func TestAuthenticator_TicketEndsWithThePassword(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for name, ticket := range map[string]string{"none": "", "nonsense": "nonsense"} {
		asked.Send("/login/code", browsertest.Fields{"code": recovery[0], "ticket": ticket}).As(name).Wants(400).
			Contains(`action="/login"`)
	}
	site.Fixture.Exec(`update account.users set password_hash =
		(select password_hash from account.users where id = $1) || 'x' where id = $2`, eve.ID, ada.ID)
	asked.Send("/login/code", browsertest.Fields{"code": recovery[0]}).Wants(400, "Please sign in again")
}

func TestAuthenticator_ReauthenticationNeedsCode(t *testing.T) {
	site := own(t)
	b := site.SignedIn(site.Member(perm.AccountAPIAccess, perm.ProgrammesRead))
	_, _, recovery := withApp(t, b)
	site.Wait(11 * time.Minute)
	b.Get(authenticatorPath).Says("confirm your identity first").Lacks("Remove the app")
	key := b.Get("/settings/security/password").Form("/settings/security/password")
	for _, path := range []string{authenticatorPath + "/remove", authenticatorPath + "/codes"} {
		b.Post(path, url.Values{"key": key["key"]})
	}
	b.Get(authenticatorPath).Says("confirm your identity first")
	question := b.Get("/login/again?return=" + url.QueryEscape(authenticatorPath))
	answer := func(code string) *browsertest.Page {
		return question.Send("/login/again", browsertest.Fields{"password": browsertest.Password, "code": code})
	}
	answer("").As("no code").Wants(400)
	answer("000000").As("wrong code").Wants(400)
	answer(recovery[0]).LeadsTo(authenticatorPath)
}

func TestAuthenticator_CodesAreReplacedAndAppIsRemoved(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	b := site.SignedIn(ada)
	_, _, recovery := withApp(t, b)
	page := b.Get(authenticatorPath)
	replaced := page.Send(authenticatorPath+"/codes", nil)
	site.Equal("new codes", len(codesOn(replaced)), 10)
	old := browsertest.Fields{"code": recovery[1]}
	password(site.Browser(), ada).Send("/login/code", old).Wants(400)
	page.Send(authenticatorPath+"/remove", nil).LeadsTo("/settings/security")
	password(site.Browser(), ada).LeadsTo("/settings/apps")
}

func TestAuthenticator_TriesAreLimited(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for i := range 20 {
		asked.Send("/login/code", browsertest.Fields{"code": "000000"}).As(i).Wants(400)
	}
	asked.Send("/login/code", browsertest.Fields{"code": recovery[0]}).
		Wants(http.StatusTooManyRequests).HasHeader("Retry-After")
}

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

// consentPath returns the path of a valid request of an application.
func consentPath(app client.Client) string {
	return "/oauth/authorize?" + url.Values{
		"client_id":    {app.ID.String()},
		"redirect_uri": {app.Redirects[0]},
		"state":        {"s"},
	}.Encode()
}

func TestSecondFactor_OnlyUserWithOneRequiresIt(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Get(members).Wants(http.StatusOK, "2 members have neither a passkey nor an authenticator app.",
		"Not required", "If you require it, members without it set it up",
		"To require it, use two-step sign-in yourself")
	form := with(browser.Get(members+"/invite").Form(members+"/invite"), "state", "on")
	browser.Post(secondFactor, form).Wants(http.StatusForbidden, "Nothing was changed.",
		"Use two-step sign-in yourself")
	reader := site.SignedIn(site.Member(perm.AccountReadMembers))
	reader.Get(members).Wants(http.StatusOK, "does not require two-step sign-in.").Lacks("have neither", "If you")
	reader.Post(secondFactor, form).Wants(http.StatusForbidden)
	withApp(t, browser)
	changed := browser.Get(members).Send(secondFactor, nil)
	changed.Follow().Wants(http.StatusOK, "need two-step sign-in now", "Required",
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
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	consent := consentPath(program)
	approval := with(browser.Get(consent).Form("/oauth/authorize"), "decision", "approve")
	token := tokenForm(browser.Get(newToken), "T", "7", perm.ProgrammesRead)
	invitation := inviteForm(browser, "sam@example.org", reading)
	existing := site.Fixture.Token(ada.ID, perm.AccountAPIAccess, perm.AccountReadMembers)
	requireFactor(site)
	for _, path := range []string{consent, members, developers, connectors, "/settings/audit"} {
		page := browser.Get(path)
		page.Wants(http.StatusForbidden, "Riverside Food Bank requires two-step sign-in", "You have neither yet.")
		link := authenticatorPath + "?return=" + url.QueryEscape(path)
		site.Equal(path+" leads to", page.Links(authenticatorPath), []string{link})
	}
	for path, form := range map[string]url.Values{
		"/oauth/authorize": approval, tokens: token, members + "/invite": invitation,
	} {
		browser.Post(path, form).Wants(http.StatusForbidden, "requires two-step sign-in", "Nothing was changed.")
	}
	site.Rows(0, "grants", "")
	site.Rows(0, "invitations", "")
	site.Rows(1, "personal_access_tokens", "") // the existing one
	list := "/v1/account/tenants/" + site.Fixture.WorkspaceID.String() + "/members"
	site.Wants("an existing token", site.Send("GET", list, "", apitest.Bearer(existing)...), http.StatusOK, "")
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
	site.Equal("a long request leads to", waiting.Links(authenticatorPath), []string{authenticatorPath})
	withApp(t, browser)
	site.Equal("a long request is continued at", waiting.Links("/oauth/authorize"), []string{long})
	browser.Get(long).Wants(http.StatusOK, "asks for access")
	browser.Get(consent).Wants(http.StatusOK, "asks for access")
	browser.Post("/oauth/authorize", approval).Wants(http.StatusSeeOther)
	here := members + "?tenant=" + site.Fixture.WorkspaceID.String()
	browser.Get(here).Wants(http.StatusOK, "Required")
}

// With only the password of a user who has a passkey, a thief can neither add a second factor nor remove the passkey,
// nor change another way to sign in, also if no workspace requires a second factor.
func TestSecondFactor_PasswordAloneDoesNotReplaceIt(t *testing.T) {
	site := shared(t)
	ada := administrator(site)
	thief := site.SignedIn(ada)
	const password = "/settings/security/password"
	changed, setup := thief.Get(password).Form(password), thief.Get(authenticatorPath).Form(authenticatorPath)
	addPasskey(site, ada)
	for _, path := range []string{password, authenticatorPath} {
		page := thief.Get(path).As(path).Omits(`name="code"`, `name="new-password"`)
		page.Link("/login/again") // asks for the second factor
	}
	changed = with(changed, "password", browsertest.Password, "new-password", "another lengthy passphrase")
	thief.Post(password, changed).Wants(http.StatusBadRequest, "confirm your identity first")
	thief.Post(authenticatorPath, with(setup, "code", "000000")).Follow().Wants(http.StatusOK, "Nothing was changed.")
	thief.Get("/login/again?return="+password).Wants(http.StatusOK, "You signed in with your password alone.")
	requireFactor(site)
	page := thief.Get(members)
	page.Wants(http.StatusForbidden, "You signed in with your password alone.")
	if found := page.Links("/login/again"); len(found) != 1 || len(page.Links(authenticatorPath)) != 0 {
		t.Errorf("the page leads to %v", found)
	}
	thief.Get(authenticatorPath).Says("confirm your identity first")
	thief.Post(authenticatorPath, with(setup, "code", "000000")).Follow().Wants(http.StatusOK, "Nothing was changed.")
	again := thief.Get("/login/again?return=/settings/members")
	again.Lacks("Enter your password again")
	if len(again.Links("/login/forgotten")) != 1 { // this deployment offers no passkeys
		t.Errorf("the page does not lead on: %s", again.Text())
	}
	thief.Post("/login/again", url.Values{"password": {browsertest.Password}, "return": {members}})
	thief.Get(members).Wants(http.StatusForbidden, "You signed in with your password alone.")
}
