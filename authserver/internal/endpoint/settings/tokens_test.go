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

var tokenPattern = regexp.MustCompile(`alm_pat_[0-9A-Za-z]+`)

func TestMakeToken_IsShownOnceAndStoredAsHash(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
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
		if strings.Contains(site.Log.String(), value) {
			t.Error("the value is in the log")
		}
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
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	read, long := []perm.Permission{perm.ProgrammesRead}, strings.Repeat("n", 101)
	for name, c := range map[string]struct {
		name, days  string
		permissions []perm.Permission
		words       string
	}{
		"no name":          {" ", "7", read, "Name: Enter a name."},
		"long name":        {long, "7", read, "Name: Must have at most 100 characters."},
		"odd name":         {"a\x00b", "7", read, "Must be a single line"},
		"no such lifetime": {"export", "8", read, "Choose 7, 30 or 90 days"},
		"one day":          {"export", "1", read, "Choose 7, 30 or 90 days"},
		"91 days":          {"export", "91", read, "Choose 7, 30 or 90 days"},
		"a year":           {"export", "365", read, "Choose 7, 30 or 90 days"},
		"negative":         {"export", "-7", read, "Choose 7, 30 or 90 days"},
		"a fraction":       {"export", "7.0", read, "Choose 7, 30 or 90 days"},
		"a space":          {"export", "30 ", read, "Choose 7, 30 or 90 days"},
		"for ever":         {"export", "", read, "Choose 7, 30 or 90 days"},
		"no permission":    {"export", "7", nil, "Choose at least one permission"},
		"not held":         {"export", "7", readAndWrite, "permissions that you have"},
		"unknown":          {"export", "7", []perm.Permission{"sudo"}, "permissions that you have"},
	} {
		page := browser.Post(tokens, tokenForm(browser.Get(newToken), c.name, c.days, c.permissions...))
		page.As(name).Wants(http.StatusBadRequest, c.words)
		form := page.Form(tokens)
		if c.name != "a\x00b" && form.Get("name") != c.name {
			t.Errorf("%s: the name came back as %q", name, form.Get("name"))
		}
		if slices.Contains(c.permissions, perm.ProgrammesRead) &&
			!slices.Contains(form["permissions"], string(perm.ProgrammesRead)) {
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
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	old := site.Fixture.Token(ada.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	browser := site.SignedIn(ada)
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
