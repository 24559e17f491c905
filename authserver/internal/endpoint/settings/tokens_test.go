package settings_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// tokenForm returns the filled-in form for a new token.
func tokenForm(page *browsertest.Page, name, days string, permissions ...perm.Permission) url.Values {
	form := page.Form(tokens)
	form.Set("name", name)
	form.Set("days", days)
	form["permissions"] = perm.NewSet(permissions...).Strings()
	return form
}

// makeToken sends the filled-in form for a new token.
func makeToken(browser *browsertest.Browser, name, days string, held ...perm.Permission) *browsertest.Page {
	return browser.Post(tokens, tokenForm(browser.Get(newToken), name, days, held...))
}

var tokenPattern = regexp.MustCompile(`alm_pat_[0-9A-Za-z]+`)

func TestMakeToken_IsShownOnceAndStoredAsHash(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	for i, days := range []string{"7", "30", "90"} {
		form := tokenForm(browser.Get(newToken), "  Nightly <b>export</b> ", days, perm.ProgrammesRead)
		page := browser.Post(tokens, form)
		value := tokenPattern.FindString(page.Body)
		if page.Status != http.StatusOK || !credential.PersonalAccessToken.Matches(value) {
			t.Fatalf("%s days: %d %s", days, page.Status, page.Text())
		}
		site.CountIs(1, `select count(*) from account.personal_access_tokens
			where hash = $1 and user_id = $2 and tenant_id = $3
			and name = 'Nightly <b>export</b>' and permissions = '{programmes:read:programmes}'
			and expires_at - $4::interval between now() - interval '1 minute' and now()`,
			credential.Hash(value), ada.ID, site.Fixture.WorkspaceID, days+" days")
		page.Says("Nightly <b>export</b>").Omits("<b>").Contains(`href="` + browsertest.Issuer + `/v1/docs"`)
		browser.Post(tokens, form).Says("already created").Omits("alm_pat_")
		browser.Get(developers).Omits("alm_pat_")
		site.Rows(i+1, "personal_access_tokens", "")
		events(site, i+1, ada, audit.TokenCreated)
		site.Rows(0, "audit_events", `detail::text like '%' || $1 || '%'`, value)
	}
}

func TestNewToken_OffersLifetimesAndHeldPermissions(t *testing.T) {
	site := shared(t)
	page := site.SignedIn(developer(site, perm.ProgrammesRead)).Get(newToken)
	for field, want := range map[string][]string{
		"days":        {"7", "30", "90"},
		"permissions": perm.NewSet(perm.ProgrammesRead, perm.AccountAPIAccess).Strings(),
	} {
		got := page.All(`form[action="`+tokens+`"] input[name=`+field+`]`, "value")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: offers %q, want %q", field, got, want)
		}
	}
}

func TestMakeToken_BadFormKeepsInput(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	read, long := []perm.Permission{perm.ProgrammesRead}, strings.Repeat("n", 101)
	const days = "Choose 7, 30 or 90 days"
	for name, c := range map[string]struct {
		name, days  string
		permissions []perm.Permission
		words       string
	}{
		"no name":          {" ", "7", read, "Name: Enter a name."},
		"long name":        {long, "7", read, "Name: Must have at most 100 characters."},
		"odd name":         {"a\x00b", "7", read, "Must be a single line"},
		"no such lifetime": {"export", "8", read, days},
		"one day":          {"export", "1", read, days},
		"91 days":          {"export", "91", read, days},
		"a year":           {"export", "365", read, days},
		"negative":         {"export", "-7", read, days},
		"a fraction":       {"export", "7.0", read, days},
		"a space":          {"export", "30 ", read, days},
		"for ever":         {"export", "", read, days},
		"no permission":    {"export", "7", nil, "Choose at least one permission"},
		"not held":         {"export", "7", readAndWrite, "permissions that you have"},
		"unknown":          {"export", "7", []perm.Permission{"sudo"}, "permissions that you have"},
	} {
		page := makeToken(browser, c.name, c.days, c.permissions...).As(name).Wants(http.StatusBadRequest, c.words)
		form, field := page.Form(tokens), "token-permissions"
		if slices.Equal(c.permissions, read) {
			field = map[bool]string{true: "token-days", false: "token-name"}[c.words == days]
		}
		summarised(name, page, field)
		if c.name != "a\x00b" && form.Get("name") != c.name {
			t.Errorf("%s: the name came back as %q", name, form.Get("name"))
		}
		if slices.Contains(c.permissions, perm.ProgrammesRead) && !slices.Contains(form["permissions"], reading) {
			t.Errorf("%s: the chosen permission came back unchecked: %v", name, form["permissions"])
		}
	}
	site.Rows(0, "personal_access_tokens", "")
}

func TestMakeToken_NeedsPasswordAfterTenMinutes(t *testing.T) {
	site := own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	fresh := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	if fresh.Has("password") {
		t.Error("the password is required right after sign-in")
	}
	site.Wait(session.Freshness)
	browser.Post(tokens, fresh).Wants(http.StatusBadRequest).Omits("alm_pat_")
	form := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	if !form.Has("password") {
		t.Fatal("there is no field for the password")
	}
	form.Set("password", "wrong")
	browser.Post(tokens, form).Wants(http.StatusBadRequest, "The password is incorrect").Keeps(tokens, "name", "export")
	for range 9 {
		browser.Post(tokens, form)
	}
	form.Set("password", browsertest.Password)
	browser.Post(tokens, form).Wants(http.StatusTooManyRequests).HasHeader("Retry-After")
	browser.Headers.Set("X-Forwarded-For", apitest.NewAddress())
	before := browser.Session()
	browser.Post(tokens, form).Wants(http.StatusOK).Contains("alm_pat_")
	if browser.Session() == before {
		t.Error("the session's identifier is the same after the reauthentication")
	}
}

func TestRevokeToken_OnlyOwnTokens(t *testing.T) {
	site := shared(t)
	ada, eve := developer(site, perm.ProgrammesRead), developer(site, perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	mine, hers := site.SignedIn(ada), site.SignedIn(eve)
	form := mine.Get(developers).Pressed(tokens + "/revoke")
	stolen := hers.Get(newToken).Form(tokens)
	hers.Post(tokens+"/revoke", url.Values{"key": stolen["key"], "tenant": stolen["tenant"], "id": form["id"]})
	site.Rows(1, "personal_access_tokens", "revoked_at is null")
	mine.Post(tokens+"/revoke", form).Follow().Says("was revoked", "No active tokens").Contains("Revoked on <time ")
	site.Rows(0, "personal_access_tokens", "revoked_at is null")
	site.Rows(1, "audit_events", `action = '`+audit.TokenRevoked+`'`)
	mine.Post(tokens+"/revoke", form).Follow().Says("no longer active")
}

func TestReplaceToken_FirstUseEndsOldToken(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	old := site.Fixture.Token(ada.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	page := browser.Post(tokens+"/replace", tokenReplacement(browser).Form(tokens+"/replace"))
	value := tokenPattern.FindString(page.Body)
	if page.Status != http.StatusOK || value == "" || !page.HasText("stops working when this one is first used") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null and hash = $1`
	site.CountIs(1, active, credential.Hash(old.Reveal()))
	site.Rows(1, "personal_access_tokens", `hash = $1 and name = 'a token'
		and permissions = '{programmes:read:programmes}'
		and expires_at > now() + interval '6 days'`, credential.Hash(value))
	site.Fixture.Exec(
		`select account.note_use(array(select id from account.personal_access_tokens where hash = $1), '{}')`,
		credential.Hash(value))
	site.CountIs(0, active, credential.Hash(old.Reveal()))
	site.CountIs(1, active, credential.Hash(value))
	browser.Get(developers).Says("Replaced on " + time.Now().UTC().Format("2 January 2006"))
}

const ownTokens, ownRevoke = "/settings/security/tokens", "/settings/security/tokens/revoke"

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
	browser.Get("/settings/security").Says("2 active tokens").Lacks("Payroll bridge")
	browser.Get(ownTokens).Says("Payroll bridge", "Hillside Youth Club", "a token", "Riverside Food Bank",
		"See programmes")
	site.Fixture.Token(eve.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.personal_access_tokens set expires_at = now() where user_id = $1`, eve.ID)
	site.SignedIn(eve).Get(ownTokens).Says("No active tokens").Lacks("Payroll bridge")
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null and user_id = $1`
	for left := 1; left >= 0; left-- {
		form := browser.Get(ownTokens).Pressed(ownRevoke)
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
	browser.Get("/settings/security").Says("You revoked the personal access token Payroll bridge").
		Lacks("active token")
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
		site.Equal("the reauthentication page returns to", again.Query().Get("return"),
			developers+"?tenant="+site.Fixture.WorkspaceID.String())
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

func signedIn(b *browsertest.Browser) bool { return b.Get("/settings/user").Status == http.StatusOK }

func TestSecurity_ListsBrowsersAndSignsOthersOut(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	here, there, third, hers := site.SignedIn(ada), site.Browser(), site.SignedIn(ada), site.SignedIn(eve)
	there.Headers.Set("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 "+
		"Version/18.0 Mobile/15E148 Safari/604.1")
	there.Headers.Set("X-Forwarded-For", "192.0.2.9")
	there.SignIn(ada)
	page := here.Get("/settings/security")
	page.Says("This browser", "Safari on an iPhone", "192.0.2.9", "You signed in with Safari on an iPhone")
	form := page.Pressed("/settings/security/sign-out")
	var theirs string
	site.Fixture.Read(`select id::text from account.sign_ins where user_id = '`+eve.ID.String()+`'`, &theirs)
	here.Post("/settings/security/sign-out", url.Values{"key": form["key"], "id": {theirs}})
	if !signedIn(hers) {
		t.Fatal("another user was signed out")
	}
	here.Post("/settings/security/sign-out", form).Follow()
	site.SignedIn(ada).Post("/logout", nil)
	text := here.Get("/settings/security").Says("You signed out another browser").Text()
	other, all := strings.Count(text, "You signed out another"), strings.Count(text, "You signed out")
	if all != other+1 {
		t.Errorf("a user's own sign-out is not told from the sign-out of another browser: %s", text)
	}
	if signedIn(there) == signedIn(third) {
		t.Error("want exactly one browser signed out")
	}
	here.Post("/settings/security/sign-out-others", form).Follow().Says("1 other browser was signed out")
	here.Get("/settings/security").Lacks("1 other browser was signed out") // shown once
	if signedIn(there) || signedIn(third) || !signedIn(here) || !signedIn(hers) {
		t.Error("want every other browser of this user signed out, and no other browser")
	}
}

func TestSecurity_ShowsWrongPasswords(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	thief := site.Browser()
	thief.Headers.Set("X-Forwarded-For", "192.0.2.66")
	thief.Post("/login", url.Values{"email": {ada.Email}, "password": {"wrong"}})
	site.SignedIn(ada).Get("/settings/security").Says("A wrong password was entered", "192.0.2.66")
}
