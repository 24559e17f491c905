package settings_test

import (
	"maps"
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

var secretPattern = regexp.MustCompile(`alm_cs_[0-9A-Za-z]+`)

func appForm(page *browsertest.Page, changes url.Values) url.Values {
	form := page.Form(apps)
	form.Set("name", "Donor sync")
	form.Set("redirect_uris", "https://app.example.org/cb\r\n\r\n  http://localhost:9/cb  ")
	form["permissions"] = []string{reading}
	maps.Copy(form, changes)
	return form
}

const mcp = browsertest.Issuer + "/mcp"

// register sends the filled-in form for a new application with changes.
func register(browser *browsertest.Browser, changes url.Values) *browsertest.Page {
	return browser.Post(apps, appForm(browser.Get(newApp), changes))
}

func TestRegisterApp_ShowsSecretOnce(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	form := appForm(browser.Get(newApp), nil)
	page := browser.Post(apps, form)
	secret := secretPattern.FindString(page.Body)
	if page.Status != http.StatusOK || !credential.ClientSecret.Matches(secret) {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	site.CountIs(1, `select count(*) from account.oauth_clients c join account.client_secrets s on s.client_id = c.id
		where s.hash = $1 and c.kind = 'confidential' and c.tenant_id = $2 and c.created_by = $3
		and c.name = 'Donor sync' and c.redirect_uris = '{https://app.example.org/cb,http://localhost:9/cb}'
		and c.token_endpoint_auth_method = 'client_secret_json'`,
		credential.Hash(secret), site.Fixture.WorkspaceID, ada.ID)
	browser.Post(apps, form).Says("already registered").Omits("alm_cs_")
	browser.Get(applications).Omits("alm_cs_")
	register(browser, url.Values{"kind": {"connector"}, "platform": {"chatgpt"}, "resource": {mcp}}).
		Wants(http.StatusOK, "no secret").Omits("alm_cs_")
	browser.Get(applications).Says("For ChatGPT", "Authenticates with client_secret_json")
	site.Rows(2, "oauth_clients", "")
}

// A refusal is at the top and at the field, and what was sent is kept. Only the chosen kind is registered: a user who
// asks for a connector never gets a secret.
func TestRegisterApp_BadFormKeepsInput(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	bot := url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {mcp}}
	set := func(name string, values ...string) url.Values { return url.Values{name: values} }
	const uris, second = "redirect_uris", "https://a.example/cb\n\nhttps://me:secret@a.example/cb"
	const noConnectors = "Assistants cannot have the permission"
	const named = "Address 2 of 2: A redirect URI must not contain a user name or password."
	for name, c := range map[string]struct {
		changes      url.Values
		field, words string
	}{
		"no name":             {set("name", ""), "name", "Enter a name"},
		"no address":          {set(uris, " \n "), "redirects", "Enter 1 to 20 redirect URIs, one per line."},
		"plain http":          {set(uris, "http://app.example.org/cb"), "redirects", "must use https"},
		"one of several":      {set(uris, second), "redirects", named},
		"script":              {set(uris, "javascript:alert(1)"), "redirects", "absolute"},
		"no permission":       {set("permissions"), "permissions", "Choose at least one permission."},
		"not held":            {set("permissions", writing), "permissions", "permissions that you have"},
		"for a connector":     {with(bot, "permissions", managing), "permissions", noConnectors},
		"another's resource":  {with(bot, "resource", "https://elsewhere.example"), "resource", "Choose a resource."},
		"without a resource":  {with(bot, "resource", ""), "resource", "Choose a resource."},
		"unknown platform":    {with(bot, "platform", "x"), "platform", "Choose a platform."},
		"without a platform":  {with(bot, "platform", ""), "platform", "Choose a platform."},
		"of nothing":          {with(bot, "platform", "", "resource", ""), "platform", "Choose a platform."},
		"its fields missing":  {with(bot, "platform", "-", "resource", "-"), "platform", "Choose a platform."},
		"unknown auth method": {set("method", "none"), "method", "Choose an authentication method."},
		"no kind":             {set("kind"), "kind", "Choose a kind"},
		"an empty kind":       {set("kind", ""), "kind", "Choose a kind"},
		"no such kind":        {set("kind", "bogus"), "kind", "Choose a kind"},
		"a service":           {set("kind", "service"), "kind", "Choose a kind"},
	} {
		form := appForm(browser.Get(newApp), c.changes)
		page := browser.Post(apps, form).As(name).Omits("alm_cs_")
		page.Wants(http.StatusBadRequest, c.words).Lacks("redirectUris", "requiredPermissions", "connectorPlatform",
			"tokenEndpointAuthMethod", "account:api:access is") // the words of the JSON API
		summarised(name, page, "app-"+c.field)
		if c.field == "kind" {
			page.Keeps(apps, "kind", "") // no other is chosen instead
			continue
		}
		page.Keeps(apps, "name", form.Get("name"), "kind", form.Get("kind"))
		back := page.Form(apps)
		sent := strings.ReplaceAll(form.Get(uris), "\r\n", "\n")
		if strings.TrimSpace(back.Get(uris)) != strings.TrimSpace(sent) {
			t.Errorf("%s: the addresses came back as %q", name, back.Get(uris))
		}
		if slices.Contains(form["permissions"], reading) && !slices.Contains(back["permissions"], reading) {
			t.Errorf("%s: the chosen permission came back unchecked", name)
		}
	}
	site.Rows(0, "oauth_clients", "")
}

// Assistants use the MCP endpoint, so it is the default resource.
func TestRegisterApp_ConnectorDefaultsToMCP(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	connector := url.Values{"kind": {"connector"}}
	register(browser, connector).Wants(http.StatusOK)
	site.Rows(1, "oauth_clients", `kind = 'connector' and resource = $1`, mcp)
	register(browser, with(connector, "resource", browsertest.Resource, "name", "")).
		Keeps(apps, "resource", browsertest.Resource)
}

// A double click or a browser's retry sends the same form several times at once.
func TestRegisterApp_RepeatedFormCreatesOneApplication(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	form := appForm(browser.Get(newApp), nil)
	answers := atOnce(8, func(int) *browsertest.Page { return browser.Post(apps, form) })
	var secrets []string
	for _, page := range answers {
		secret := secretPattern.FindString(page.Body)
		if page.Status != http.StatusOK || (secret == "") != page.HasText("already registered") {
			t.Errorf("%d %s", page.Status, page.Text())
		}
		if secret != "" {
			secrets = append(secrets, secret)
		}
	}
	if len(secrets) != 1 ||
		site.Count(`select count(*) from account.client_secrets where hash = $1`, credential.Hash(secrets[0])) != 1 {
		t.Errorf("%d secrets are shown, or the secret is not stored", len(secrets))
	}
	site.Rows(1, "oauth_clients", "")
	site.Rows(1, "audit_events", `action = '`+audit.ClientRegistered+`'`)
	site.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where tenant_id = $1`,
		site.Fixture.WorkspaceID)
	browser.Post(apps, form).Says("This application was deleted").Lacks("already registered")
}

func TestDeleteApp_RevokesGrants(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	ask := linked(browser, applications, applications+"/delete?").Says("Delete Donor sync?", "You lose Donor sync.")
	ask.Send(apps+"/delete", browsertest.Fields{"id": app.ID.String()}).Follow().
		Says("Donor sync was deleted", "No OAuth applications")
	site.Rows(1, "grants", `state = 'revoked' and revoke_reason = 'client_deleted'`)
	browser.Get("/settings/apps").Says("because the app was deleted")
}

// The page that shows a new application's client id also says what to do next.
func TestApplications_RegisteredOneShowsNextSteps(t *testing.T) {
	_, _, browser := inSettings(t, perm.ProgrammesRead)
	const callback = "https://app.example.org/callback?a=b"
	register(browser, url.Values{"redirect_uris": {callback}}).
		Wants(http.StatusOK, "Donor sync was registered", "Exchange the code on your server").
		Contains("/v1/account/oauth/token", "/oauth/authorize?client_id=",
			"redirect_uri="+url.QueryEscape(callback), `/v1/docs#exchangeToken"`)
	register(browser, url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {mcp}}).
		Says("add a custom connector with the address " + mcp).Omits("/oauth/authorize?client_id=")
}

// replacement returns the page that replaces the secret of the first application, to which the list links.
func replacement(browser *browsertest.Browser) *browsertest.Page {
	return linked(browser, applications, applications+"/secret?")
}

// tokenReplacement returns the page that replaces the first token.
func tokenReplacement(browser *browsertest.Browser) *browsertest.Page {
	return linked(browser, developers, developers+"/replace?")
}

// linked returns the first page to which another one links with a URL that begins so, or the other one.
func linked(browser *browsertest.Browser, from, prefix string) *browsertest.Page {
	page := browser.Get(from)
	if links := page.Links(prefix); len(links) > 0 {
		return browser.Get(links[0])
	}
	return page
}

// A leaked secret must not stay valid for a day because the password was mistyped first.
func TestReplaceSecret_WrongPasswordKeepsInput(t *testing.T) {
	site := own(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Wait(session.Freshness + time.Second)
	for path, open := range map[string]func(*browsertest.Browser) *browsertest.Page{
		apps + "/secret": replacement, tokens + "/replace": tokenReplacement,
	} {
		for password, words := range map[string]string{
			"wrong": "The password is incorrect.",
			"":      "Enter your password to continue.",
		} {
			form := with(open(browser).Form(path), "password", password, "expire_old", "yes")
			id := form.Get("id")
			page := browser.Post(path, form).As(path, password)
			page.Wants(http.StatusBadRequest, "Nothing was created.", words, "Your password: ").
				Contains(`id="password-`+id+`"`, `id="password-note-`+id+`"`, `href="#password-`+id+`"`)
			if path == apps+"/secret" {
				page.Keeps(path, "id", id, "expire_old", "yes")
			}
		}
	}
	form := replacement(browser).Keeps(apps+"/secret", "expire_old", "").Form(apps + "/secret")
	retry := browser.Post(apps+"/secret", with(form, "expire_old", "yes", "password", "wrong"))
	retry.Send(apps+"/secret", browsertest.Fields{"password": browsertest.Password}).
		Wants(http.StatusOK, "The old secret no longer works.")
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, form.Get("id"))
}

// The old secret ends at once if the box is ticked, or a day later. The user ticks it, and no link that another person
// sends.
func TestReplaceSecret_LinkTicksNothing(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	app, old := site.Fixture.Confidential(perm.ProgrammesRead)
	const path = apps + "/secret"
	const good = `select count(*) from account.client_secrets
		where client_id = $1 and hash = $2 and (expires_at is null or expires_at > now() + interval '23 hours')`
	form := replacement(browser).Form(path)
	link := applications + "/secret?tenant=" + form.Get("tenant") + "&id=" + form.Get("id") + "&expire_old=yes"
	page := browser.Get(link).Wants(http.StatusOK).Contains(`name="expire_old"`)
	replaced := page.Keeps(path, "expire_old", "", "id", form.Get("id")).Send(path, nil)
	replaced.Wants(http.StatusOK, "The old secret keeps working for 24 hours.")
	site.CountIs(1, good, app.ID, credential.Hash(old.Reveal()))
	site.CountIs(1, good, app.ID, credential.Hash(secretPattern.FindString(replaced.Body)))
	ending := replacement(browser).Send(path, browsertest.Fields{"expire_old": "yes"})
	site.CountIs(1, good, app.ID, credential.Hash(secretPattern.FindString(ending.Body)))
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, app.ID)
}
