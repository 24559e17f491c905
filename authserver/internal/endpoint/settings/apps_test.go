package settings_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

var secretPattern = regexp.MustCompile(`alm_cs_[0-9A-Za-z]+`)

func appForm(page *browsertest.Page, changes url.Values) url.Values {
	form := page.Form(apps)
	form.Set("name", "Donor sync")
	form.Set("redirect_uris", "https://app.example.org/cb\r\n\r\n  http://localhost:9/cb  ")
	form["permissions"] = []string{string(perm.ProgrammesRead)}
	for name, values := range changes {
		form[name] = values
	}
	return form
}

const mcp = browsertest.Issuer + "/mcp"

// register sends the filled-in form for a new application with changes.
func register(browser *browsertest.Browser, changes url.Values) *browsertest.Page {
	return browser.Post(apps, appForm(browser.Get(newApp), changes))
}

func TestRegisterApp_ShowsSecretOnce(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
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

func TestRegisterApp_BadFormKeepsInput(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	connector := url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {browsertest.Resource}}
	for name, c := range map[string]struct {
		changes url.Values
		words   string
	}{
		"no name":    {url.Values{"name": {""}}, "Enter a name"},
		"no address": {url.Values{"redirect_uris": {" \n "}}, "Enter 1 to 20 redirect URIs, one per line."},
		"plain http": {url.Values{"redirect_uris": {"http://app.example.org/cb"}}, "must use https"},
		"one of several": {
			url.Values{"redirect_uris": {"https://a.example/cb\n\nhttps://me:secret@a.example/cb"}},
			"Address 2 of 2: A redirect URI must not contain a user name or password.",
		},
		"script":        {url.Values{"redirect_uris": {"javascript:alert(1)"}}, "absolute"},
		"no permission": {url.Values{"permissions": nil}, "Choose at least one permission."},
		"not held":      {url.Values{"permissions": {string(perm.ProgrammesWrite)}}, "permissions that you have"},
		"for a connector": {
			with(connector, "permissions", string(perm.AccountAPIAccess)), "Connectors cannot have the permission",
		},
		"another's resource":  {with(connector, "resource", "https://elsewhere.example"), "Choose a resource."},
		"unknown platform":    {with(connector, "platform", "x"), "Choose a platform."},
		"unknown auth method": {url.Values{"method": {"none"}}, "Choose an authentication method."},
	} {
		form := appForm(browser.Get(newApp), c.changes)
		page := browser.Post(apps, form)
		page.As(name).Wants(http.StatusBadRequest, c.words).Lacks("redirectUris", "requiredPermissions",
			"connectorPlatform", "tokenEndpointAuthMethod", "account:api:access is") // members of the JSON API
		page.As(name).Keeps(apps, "name", form.Get("name"), "kind", form.Get("kind"))
		back := page.Form(apps)
		sent := strings.ReplaceAll(form.Get("redirect_uris"), "\r\n", "\n")
		if strings.TrimSpace(back.Get("redirect_uris")) != strings.TrimSpace(sent) {
			t.Errorf("%s: the addresses came back as %q", name, back.Get("redirect_uris"))
		}
		if slices.Contains(form["permissions"], string(perm.ProgrammesRead)) &&
			!slices.Contains(back["permissions"], string(perm.ProgrammesRead)) {
			t.Errorf("%s: the chosen permission came back unchecked", name)
		}
	}
	site.Rows(0, "oauth_clients", "")
}

// Only the chosen kind is registered: a user who asks for a connector never gets a secret.
func TestRegisterApp_UnknownKindOrIncompleteConnectorIsRefused(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	connector := url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {mcp}}
	for name, c := range map[string]struct {
		changes url.Values
		field   string
	}{
		"no kind":                  {url.Values{"kind": nil}, "app-kind"},
		"an empty kind":            {url.Values{"kind": {""}}, "app-kind"},
		"a kind that there is not": {url.Values{"kind": {"bogus"}}, "app-kind"},
		"a service":                {url.Values{"kind": {"service"}}, "app-kind"},
		"a connector of nothing":   {with(connector, "platform", "", "resource", ""), "app-platform"},
		"a connector, fields missing": {
			url.Values{"kind": {"connector"}, "platform": nil, "resource": nil}, "app-platform",
		},
		"without a platform": {with(connector, "platform", ""), "app-platform"},
		"without a resource": {with(connector, "resource", ""), "app-resource"},
	} {
		page := register(browser, c.changes)
		page.As(name).Wants(http.StatusBadRequest).Omits("alm_cs_").
			Contains(`id="`+c.field+`-note"`, `href="#`+c.field+`"`)
		if kind := page.Form(apps).Get("kind"); c.field == "app-kind" && kind != "" {
			t.Errorf("%s: %s is chosen instead", name, kind)
		}
	}
	site.Rows(0, "oauth_clients", "")
}

// Assistants use the MCP endpoint, so it is the default resource.
func TestRegisterApp_ConnectorDefaultsToMCP(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	register(browser, url.Values{"kind": {"connector"}}).Wants(http.StatusOK)
	site.Rows(1, "oauth_clients", `kind = 'connector' and resource = $1`, mcp)
	refused := register(browser,
		url.Values{"kind": {"connector"}, "resource": {browsertest.Resource}, "name": {""}})
	refused.Keeps(apps, "resource", browsertest.Resource)
}

// A double click or a browser's retry sends the same form several times at once.
func TestRegisterApp_RepeatedFormCreatesOneApplication(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
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

func TestReplaceSecret_OldSecretWorksForADay(t *testing.T) {
	site := shared(t)
	app, old := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(developer(site))
	const good = `select count(*) from account.client_secrets
		where client_id = $1 and hash = $2 and (expires_at is null or expires_at > now() + interval '23 hours')`
	page := browser.Post(apps+"/secret", replacement(browser).Form(apps+"/secret"))
	second := secretPattern.FindString(page.Body)
	page.Wants(http.StatusOK)
	site.CountIs(1, good, app.ID, credential.Hash(old.Reveal()))
	site.CountIs(1, good, app.ID, credential.Hash(second))
	form := replacement(browser).Form(apps + "/secret")
	form.Set("expire_old", "yes")
	third := secretPattern.FindString(browser.Post(apps+"/secret", form).Body)
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, app.ID)
	site.CountIs(1, good, app.ID, credential.Hash(third))
}

func TestDeleteApp_RevokesGrants(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	browser.Get(applications).Send(apps+"/delete", browsertest.Fields{"id": app.ID.String()}).Follow().
		Says("Donor sync was deleted", "No applications")
	site.Rows(1, "grants", `state = 'revoked' and revoke_reason = 'client_deleted'`)
	browser.Get("/settings/apps").Says("because the application was deleted")
}

func TestApps_OfOtherWorkspaceCannotBeChanged(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	eve := site.Stranger()
	site.Fixture.Join(elsewhere, eve.ID, perm.AccountAPIAccess)
	browser := site.SignedIn(eve)
	form := browser.Get(newToken).Form(tokens)
	for _, path := range []string{apps + "/secret", apps + "/delete"} {
		form.Set("id", app.ID.String())
		browser.Post(path, form).As(path).Omits("alm_cs_")
	}
	site.Rows(1, "oauth_clients", `id = $1 and deleted_at is null`, app.ID)
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, app.ID)
}
