package settings_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
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

func TestRegisterApp_ShowsSecretOnce(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := appForm(browser.Get(newApp), nil)
	page := browser.Post(apps, form)
	secret := secretPattern.FindString(page.Body)
	if page.Status != http.StatusOK || !credential.ClientSecret.Matches(secret) {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	if n := site.Count(`select count(*) from account.oauth_clients c join account.client_secrets s on s.client_id = c.id
		where s.hash = $1 and c.kind = 'confidential' and c.tenant_id = $2 and c.created_by = $3
		and c.name = 'Donor sync' and c.redirect_uris = '{https://app.example.org/cb,http://localhost:9/cb}'
		and c.token_endpoint_auth_method = 'client_secret_json'`,
		credential.Hash(secret), site.Fixture.WorkspaceID, ada.ID); n != 1 {
		t.Errorf("%d such clients", n)
	}
	if again := browser.Post(apps, form); secretPattern.MatchString(again.Body) ||
		!again.HasText("already registered") {
		t.Errorf("the same form again: %s", again.Text())
	}
	if secretPattern.MatchString(browser.Get(applications).Body) {
		t.Error("the secret is shown again")
	}
	connector := browser.Post(
		apps,
		appForm(
			browser.Get(newApp),
			url.Values{"kind": {"connector"}, "platform": {"chatgpt"}, "resource": {browsertest.Issuer + "/mcp"}},
		),
	)
	if connector.Status != http.StatusOK || secretPattern.MatchString(connector.Body) ||
		!connector.HasText("no secret") {
		t.Errorf("connector: %d %s", connector.Status, connector.Text())
	}
	if page := browser.Get(applications); !page.HasText("For ChatGPT") ||
		!page.HasText("Authenticates with client_secret_json") {
		t.Errorf("listed: %s", page.Text())
	}
	if n := site.Count(`select count(*) from account.oauth_clients`); n != 2 {
		t.Errorf("%d clients", n)
	}
}

func TestRegisterApp_BadFormKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
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
			url.Values{
				"kind":        {"connector"},
				"platform":    {"claude"},
				"resource":    {browsertest.Resource},
				"permissions": {string(perm.AccountAPIAccess)},
			},
			"Connectors cannot have the permission",
		},
		"another's resource": {
			url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {"https://elsewhere.example"}},
			"Choose a resource.",
		},
		"unknown platform": {
			url.Values{"kind": {"connector"}, "platform": {"x"}, "resource": {browsertest.Resource}},
			"Choose a platform.",
		},
		"unknown auth method": {url.Values{"method": {"none"}}, "Choose an authentication method."},
	} {
		form := appForm(browser.Get(newApp), c.changes)
		page := browser.Post(apps, form)
		if page.Status != http.StatusBadRequest || !page.HasText(c.words) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
			continue
		}
		for _, member := range []string{
			"redirectUris",
			"requiredPermissions",
			"connectorPlatform",
			"tokenEndpointAuthMethod",
			"account:api:access is",
		} {
			if page.HasText(member) {
				t.Errorf("%s: the message names the JSON member %s", name, member)
			}
		}
		back := page.Form(apps)
		for _, field := range []string{"name", "kind"} {
			if back.Get(field) != form.Get(field) {
				t.Errorf("%s: field %s came back as %q", name, field, back.Get(field))
			}
		}
		sent := strings.ReplaceAll(form.Get("redirect_uris"), "\r\n", "\n")
		if strings.TrimSpace(back.Get("redirect_uris")) != strings.TrimSpace(sent) {
			t.Errorf("%s: the addresses came back as %q", name, back.Get("redirect_uris"))
		}
		if slices.Contains(form["permissions"], string(perm.ProgrammesRead)) &&
			!slices.Contains(back["permissions"], string(perm.ProgrammesRead)) {
			t.Errorf("%s: the chosen permission came back unchecked", name)
		}
	}
	if n := site.Count(`select count(*) from account.oauth_clients`); n != 0 {
		t.Errorf("%d clients", n)
	}
}

// Only the chosen kind is registered: a user who asks for a connector never gets a secret.
func TestRegisterApp_UnknownKindOrIncompleteConnectorIsRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	mcp := []string{browsertest.Issuer + "/mcp"}
	for name, c := range map[string]struct {
		changes url.Values
		field   string
	}{
		"no kind":                  {url.Values{"kind": nil}, "app-kind"},
		"an empty kind":            {url.Values{"kind": {""}}, "app-kind"},
		"a kind that there is not": {url.Values{"kind": {"bogus"}}, "app-kind"},
		"a service":                {url.Values{"kind": {"service"}}, "app-kind"},
		"a connector of nothing": {
			url.Values{"kind": {"connector"}, "platform": {""}, "resource": {""}},
			"app-platform",
		},
		"a connector, fields missing": {
			url.Values{"kind": {"connector"}, "platform": nil, "resource": nil},
			"app-platform",
		},
		"without a platform": {
			url.Values{"kind": {"connector"}, "platform": {""}, "resource": mcp},
			"app-platform",
		},
		"without a resource": {
			url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {""}},
			"app-resource",
		},
	} {
		page := browser.Post(apps, appForm(browser.Get(newApp), c.changes))
		if page.Status != http.StatusBadRequest || secretPattern.MatchString(page.Body) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
			continue
		}
		if !strings.Contains(page.Body, `id="`+c.field+`-note"`) ||
			!strings.Contains(page.Body, `href="#`+c.field+`"`) {
			t.Errorf("%s: the message is not at %s: %s", name, c.field, page.Text())
		}
		if kind := page.Form(apps).Get("kind"); c.field == "app-kind" && kind != "" {
			t.Errorf("%s: %s is chosen instead", name, kind)
		}
	}
	if n := site.Count(`select count(*) from account.oauth_clients`); n != 0 {
		t.Errorf("%d clients", n)
	}
}

// Assistants use the MCP endpoint, so it is the default resource.
func TestRegisterApp_ConnectorDefaultsToMCP(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	page := browser.Post(apps, appForm(browser.Get(newApp), url.Values{"kind": {"connector"}}))
	if page.Status != http.StatusOK ||
		site.Count(
			`select count(*) from account.oauth_clients where kind = 'connector' and resource = $1`,
			browsertest.Issuer+"/mcp",
		) != 1 {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	refused := browser.Post(
		apps,
		appForm(
			browser.Get(newApp),
			url.Values{"kind": {"connector"}, "resource": {browsertest.Resource}, "name": {""}},
		),
	)
	if back := refused.Form(apps).Get("resource"); back != browsertest.Resource {
		t.Errorf("the chosen resource came back as %q", back)
	}
}

// A double click or a browser's retry sends the same form several times at once.
func TestRegisterApp_RepeatedFormCreatesOneApplication(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	form := appForm(browser.Get(newApp), nil)
	answers := make([]*browsertest.Page, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = browser.Post(apps, form) })
	}
	all.Wait()
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
	if site.Count(`select count(*) from account.client_secrets`) != 1 ||
		site.Count(`select count(*) from account.audit_events where action = '`+audit.ClientRegistered+`'`) != 1 {
		t.Error("want one application and one event")
	}
	site.Fixture.Exec(`update account.oauth_clients set deleted_at = now()`)
	if page := browser.Post(apps, form); !page.HasText("This application was deleted") ||
		page.HasText("already registered") {
		t.Errorf("form sent again after the deletion: %d %s", page.Status, page.Text())
	}
}

func TestReplaceSecret_OldSecretWorksForADay(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, old := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(developer(site))
	const good = `select count(*) from account.client_secrets
		where client_id = $1 and hash = $2 and (expires_at is null or expires_at > now() + interval '23 hours')`
	page := browser.Post(apps+"/secret", replacement(browser).Form(apps+"/secret"))
	second := secretPattern.FindString(page.Body)
	if page.Status != http.StatusOK || site.Count(good, app.ID, credential.Hash(old.Reveal())) != 1 ||
		site.Count(good, app.ID, credential.Hash(second)) != 1 {
		t.Errorf("%d: both should be good for a day", page.Status)
	}
	form := replacement(browser).Form(apps + "/secret")
	form.Set("expire_old", "yes")
	third := secretPattern.FindString(browser.Post(apps+"/secret", form).Body)
	if site.Count(`select count(*) from account.client_secrets where client_id = $1`, app.ID) != 1 ||
		site.Count(good, app.ID, credential.Hash(third)) != 1 {
		t.Error("after a leak the new one should be the only one")
	}
}

func TestDeleteApp_RevokesGrants(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	page := browser.Get(applications).Send(apps+"/delete", browsertest.Fields{"id": app.ID.String()}).Follow()
	if !page.HasText("Donor sync was deleted") || !page.HasText("No applications") {
		t.Errorf("%s", page.Text())
	}
	if site.Count(
		`select count(*) from account.grants where state = 'revoked' and revoke_reason = 'client_deleted'`,
	) != 1 {
		t.Error("the grant is not revoked")
	}
	if page := browser.Get("/settings/apps"); !page.HasText("because the application was deleted") {
		t.Errorf("%s", page.Text())
	}
}

func TestApps_OfOtherWorkspaceCannotBeChanged(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	eve := site.Stranger()
	site.Fixture.Join(elsewhere, eve.ID, perm.AccountAPIAccess)
	browser := site.SignedIn(eve)
	form := browser.Get(newToken).Form(tokens)
	for _, path := range []string{apps + "/secret", apps + "/delete"} {
		page := browser.Post(path, url.Values{"key": form["key"], "tenant": form["tenant"], "id": {app.ID.String()}})
		if secretPattern.MatchString(page.Body) {
			t.Errorf("%s gave a secret away", path)
		}
	}
	if site.Count(`select count(*) from account.oauth_clients where id = $1 and deleted_at is null`, app.ID) != 1 ||
		site.Count(`select count(*) from account.client_secrets where client_id = $1`, app.ID) != 1 {
		t.Error("the application was changed")
	}
}
