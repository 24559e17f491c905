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

var tokenPattern = regexp.MustCompile(`alm_pat_[0-9A-Za-z]+`)

func TestMakeToken_IsShownOnceAndStoredAsHash(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := tokenForm(browser.Get(newToken), "  Nightly <b>export</b> ", "7", perm.ProgrammesRead)
	page := browser.Post(tokens, form)
	value := tokenPattern.FindString(page.Body)
	if page.Status != http.StatusOK || !credential.PersonalAccessToken.Matches(value) {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	if n := site.Count(`select count(*) from account.personal_access_tokens
		where hash = $1 and user_id = $2 and tenant_id = $3
		and name = 'Nightly <b>export</b>' and permissions = '{programmes:read:programmes}'
		and expires_at between now() + interval '7 days' - interval '1 minute' and now() + interval '7 days'`,
		credential.Hash(value), ada.ID, site.Fixture.WorkspaceID); n != 1 {
		t.Errorf("%d such tokens are stored", n)
	}
	if !page.HasText("Nightly <b>export</b>") || len(page.Elements("b")) != 0 {
		t.Error("the name is not shown as text")
	}
	if !strings.Contains(page.Body, `href="`+browsertest.Issuer+`/v1/docs"`) {
		t.Error("no link to the API documentation")
	}
	again := browser.Post(tokens, form)
	if tokenPattern.MatchString(again.Body) || !again.HasText("already created") {
		t.Errorf("the same form again: %s", again.Text())
	}
	if tokenPattern.MatchString(browser.Get(developers).Body) {
		t.Error("the value is shown again")
	}
	if n := site.Count(`select count(*) from account.personal_access_tokens`); n != 1 {
		t.Errorf("%d tokens", n)
	}
	const created = `select count(*) from account.audit_events
		where action = '` + audit.TokenCreated + `' and tenant_id = $1 and user_id = $2`
	if n := site.Count(created, site.Fixture.WorkspaceID, ada.ID); n != 1 {
		t.Errorf("%d audit events", n)
	}
	if strings.Contains(site.Log.String(), value) ||
		site.Count(`select count(*) from account.audit_events where detail::text like '%' || $1 || '%'`, value) != 0 {
		t.Error("the value is in a log")
	}
}

func TestMakeToken_BadFormKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for name, c := range map[string]struct {
		name, days  string
		permissions []perm.Permission
		words       string
	}{
		"no name": {" ", "7", []perm.Permission{perm.ProgrammesRead}, "Name: Enter a name."},
		"long name": {
			strings.Repeat("n", 101),
			"7",
			[]perm.Permission{perm.ProgrammesRead},
			"Name: Must have at most 100 characters.",
		},
		"odd name":         {"a\x00b", "7", []perm.Permission{perm.ProgrammesRead}, "Must be a single line"},
		"no such lifetime": {"export", "8", []perm.Permission{perm.ProgrammesRead}, "Choose 7, 30 or 90 days"},
		"for ever":         {"export", "", []perm.Permission{perm.ProgrammesRead}, "Choose 7, 30 or 90 days"},
		"no permission":    {"export", "7", nil, "Choose at least one permission"},
		"not held": {
			"export",
			"7",
			[]perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite},
			"permissions that you have",
		},
		"unknown": {"export", "7", []perm.Permission{"sudo"}, "permissions that you have"},
	} {
		page := browser.Post(tokens, tokenForm(browser.Get(newToken), c.name, c.days, c.permissions...))
		if page.Status != http.StatusBadRequest || !page.HasText(c.words) {
			t.Errorf("%s: %d", name, page.Status)
		}
		form := page.Form(tokens)
		if c.name != "a\x00b" && form.Get("name") != c.name {
			t.Errorf("%s: the name came back as %q", name, form.Get("name"))
		}
		if slices.Contains(c.permissions, perm.ProgrammesRead) &&
			!slices.Contains(form["permissions"], string(perm.ProgrammesRead)) {
			t.Errorf("%s: the chosen permission came back unchecked: %v", name, form["permissions"])
		}
	}
	if n := site.Count(`select count(*) from account.personal_access_tokens`); n != 0 {
		t.Errorf("%d tokens", n)
	}
}

func TestMakeToken_NeedsPasswordAfterTenMinutes(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	fresh := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	if fresh.Has("password") {
		t.Error("the password is required right after sign-in")
	}
	site.Wait(session.Freshness)
	if page := browser.Post(tokens, fresh); page.Status != http.StatusBadRequest ||
		tokenPattern.MatchString(page.Body) {
		t.Errorf("without the password: %d", page.Status)
	}
	form := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	if !form.Has("password") {
		t.Fatal("there is no field for the password")
	}
	form.Set("password", "wrong")
	wrong := browser.Post(tokens, form)
	if wrong.Status != http.StatusBadRequest || !wrong.HasText("The password is incorrect") ||
		wrong.Form(tokens).Get("name") != "export" {
		t.Errorf("with a wrong password: %d %s", wrong.Status, wrong.Text())
	}
	for range 9 {
		browser.Post(tokens, form)
	}
	form.Set("password", browsertest.Password)
	if page := browser.Post(tokens, form); page.Status != http.StatusTooManyRequests ||
		page.Header.Get("Retry-After") == "" {
		t.Errorf("after ten wrong ones: %d", page.Status)
	}
	browser.Headers.Set("X-Forwarded-For", "192.0.2.7")
	before := browser.Session()
	if page := browser.Post(tokens, form); page.Status != http.StatusOK || !tokenPattern.MatchString(page.Body) {
		t.Errorf("with the password: %d %s", page.Status, page.Text())
	}
	if browser.Session() == before {
		t.Error("the session's identifier is the same after the reauthentication")
	}
}

func TestRevokeToken_OnlyOwnTokens(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, eve := developer(site, perm.ProgrammesRead), developer(site, perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	mine, hers := site.SignedIn(ada), site.SignedIn(eve)
	form := mine.Get(developers).Pressed(tokens + "/revoke")
	stolen := hers.Get(newToken).Form(tokens)
	hers.Post(tokens+"/revoke", url.Values{"key": stolen["key"], "tenant": stolen["tenant"], "id": form["id"]})
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null`
	if site.Count(active) != 1 {
		t.Fatal("another user revoked the token")
	}
	if page := mine.Post(tokens+"/revoke", form).Follow(); !page.HasText("was revoked") ||
		!page.HasText("No active tokens") ||
		!strings.Contains(page.Body, "Revoked on <time ") {
		t.Errorf("%s", page.Text())
	}
	if site.Count(active) != 0 ||
		site.Count(`select count(*) from account.audit_events where action = '`+audit.TokenRevoked+`'`) != 1 {
		t.Error("want the token revoked and one event")
	}
	if page := mine.Post(tokens+"/revoke", form).Follow(); !page.HasText("no longer active") {
		t.Errorf("twice: %s", page.Text())
	}
}

func TestReplaceToken_FirstUseEndsOldToken(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	old := site.Fixture.Token(ada.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	browser := site.SignedIn(ada)
	page := browser.Post(tokens+"/replace", tokenReplacement(browser).Form(tokens+"/replace"))
	value := tokenPattern.FindString(page.Body)
	if page.Status != http.StatusOK || value == "" || !page.HasText("stops working when this one is first used") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	const active = `select count(*) from account.personal_access_tokens where revoked_at is null and hash = $1`
	if site.Count(active, credential.Hash(old.Reveal())) != 1 {
		t.Error("the old token ended before the new one was used")
	}
	if n := site.Count(`select count(*) from account.personal_access_tokens where hash = $1 and name = 'a token'
		and permissions = '{programmes:read:programmes}'
		and expires_at > now() + interval '6 days'`, credential.Hash(value)); n != 1 {
		t.Error("want a new token with the old name and lifetime and the permissions still held")
	}
	site.Fixture.Exec(
		`select account.note_use(array(select id from account.personal_access_tokens where hash = $1), '{}')`,
		credential.Hash(value),
	)
	if site.Count(active, credential.Hash(old.Reveal())) != 0 || site.Count(active, credential.Hash(value)) != 1 {
		t.Error("want only the old token ended by the first use")
	}
	if page := browser.Get(developers); !page.HasText("Replaced on " + time.Now().UTC().Format("2 January 2006")) {
		t.Errorf("%s", page.Text())
	}
}
