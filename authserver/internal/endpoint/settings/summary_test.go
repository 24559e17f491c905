package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// summarised requires that the page reports the problem in its title and at its top with a link to the field, and that
// the field is associated with its note (WCAG 2.2, success criteria 3.3.1, 2.4.2, 1.3.1).
func summarised(name string, page *browsertest.Page, field string) {
	page.As(name).Contains("<title>Error: ").Selects(`#problem[role=alert] a[href="#`+field+`"]`, "#"+field,
		"#"+page.Attribute("#"+field, "aria-describedby")+".note")
}

func TestDevelopers_ProblemIsSummarisedAtTop(t *testing.T) {
	site := own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	browser.Get(newToken).Omits("Error: ", `id="problem"`)
	token := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	app := appForm(browser.Get(newApp), nil)
	site.Wait(session.Freshness)
	summarised("password for a token", browser.Post(tokens, with(token, "password", "")), "password-token")
	summarised("password for an application", browser.Post(apps, with(app, "password", "wrong")), "password-app")
	// All errors of a form are shown at once, the missing password too, and the first one has the focus.
	for page, action := range map[string]string{newToken: tokens, newApp: apps, newHook: webhooks} {
		refused := browser.Get(page).Send(action, browsertest.Fields{"name": ""}).As(page)
		refused.Wants(http.StatusBadRequest, "Enter your password to continue.").Times(1, " autofocus").
			Omits(`autocomplete="current-password" autofocus`)
		if listed := refused.All("#problem li a", "href"); len(listed) < 2 {
			t.Errorf("%s lists the errors %q", page, listed)
		}
	}
}

// All errors are listed, and the first field gets the focus without a script.
func TestDevelopers_AllProblemsAreListedAtOnce(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	app := func(pairs ...string) *browsertest.Page {
		return register(browser, with(url.Values{"redirect_uris": {"x"}}, pairs...))
	}
	for name, c := range map[string]struct {
		page   *browsertest.Page
		fields string
	}{
		"token":             {makeToken(browser, "", "8"), "token-name token-days token-permissions"},
		"token with a name": {makeToken(browser, "export", "8"), "token-days token-permissions"},
		"application": {
			app("name", "", "kind", "-", "permissions", "-"), "app-name app-kind app-redirects app-permissions",
		},
		"connector": {
			app("kind", "connector", "platform", "x", "resource", "x"), "app-platform app-resource app-redirects",
		},
		"webhook": {browser.Post(webhooks, webhookForm(browser.Get(newHook), "")), "webhook-url webhook-types"},
	} {
		fields := strings.Fields(c.fields)
		site.Equal(name+": the focus", c.page.All("[autofocus]", "id"), fields[:1])
		site.Equal(name+": the notes", c.page.All("[class=note]", "id"),
			strings.Fields(strings.ReplaceAll(c.fields+" ", " ", "-note ")))
	}
}

// A page with 62 tokens or 64 applications has 25 of them and less than 60 KB, and a search finds the others.
func TestDevelopers_ListsAreShortAndSearchable(t *testing.T) {
	site := own(t)
	permissions := everyPermission()
	ada := developer(site, permissions...)
	for range 62 {
		site.Fixture.Token(ada.ID, permissions...)
	}
	for range 64 {
		site.Fixture.Confidential(permissions...)
	}
	site.Fixture.Exec(`update account.personal_access_tokens t set name = 'Export ' || n from (select id,
		row_number() over (order by id) as n from account.personal_access_tokens) s where s.id = t.id`)
	site.Fixture.Exec(`update account.oauth_clients t set name = 'Sync ' || n from (select id,
		row_number() over (order by id) as n from account.oauth_clients) s where s.id = t.id`)
	browser := site.SignedIn(ada)
	site.Wait(session.Freshness) // the forms have their fields for the password
	for path, name := range map[string]string{developers: "Export ", applications: "Sync "} {
		names, last := map[string]bool{}, map[string]int{developers: 12, applications: 14}[path]
		path += "?tenant=" + site.Fixture.WorkspaceID.String()
		for number, want := range map[string]int{"": 25, "&page=2": 25, "&page=3": last, "&page=0": 25, "&page=x": 25} {
			page, rows := browser.Get(path+number), 0
			for _, h3 := range page.Elements("h3") {
				if text := browsertest.TextOf(h3); strings.HasPrefix(text, name) {
					rows, names[text] = rows+1, true
				}
			}
			site.Equal(path+number+": rows", rows, want)
			isLight(t, path+number, page)
		}
		site.Equal(path+": rows on all pages", len(names), 50+last)
		browser.Get(path + "&q=+" + url.QueryEscape(strings.ToUpper(name)) + "61").As(path).Says(name + "61").
			Lacks(name + "60")
		if none := browser.Get(path + "&q=%3Cb%3E"); !none.HasText("matches") || len(none.Elements("b")) != 0 {
			t.Errorf("%s: a search without results: %s", path, none.Text())
		}
	}
}

func everyPermission() (out []perm.Permission) {
	for _, entry := range perm.All() {
		out = append(out, entry.ID)
	}
	return out
}

// isLight requires that a page has at most 60 KB.
func isLight(t *testing.T, path string, page *browsertest.Page) {
	t.Helper()
	t.Logf("%s: %d bytes", path, len(page.Body))
	if len(page.Body) > 60<<10 {
		t.Errorf("%s: %d bytes", path, len(page.Body))
	}
}

// A page has at most 60 KB however many members, invitations, connections, tokens, applications and sign-ins there are.
func TestPages_AreLight(t *testing.T) {
	site := shared(t)
	permissions := everyPermission()
	ada := developer(site, permissions...)
	in, everything := site.Fixture.WorkspaceID, perm.NewSet(permissions...).Strings()
	connector := site.Fixture.Connector(browsertest.Resource, perm.ForConnectors()...)
	confidential, _ := site.Fixture.Confidential(permissions...)
	browser := site.SignedIn(ada)
	for range 62 {
		site.Fixture.Token(ada.ID, permissions...)
		site.Fixture.Confidential(permissions...)
	}
	connections(site, connector, ada, 31)
	connections(site, confidential, ada, 31)
	site.Fixture.Exec(`insert into account.users (id, email, name, password_hash)
		select gen_random_uuid(), 'member.' || n || '@example.org', 'Member ' || n, '' from generate_series(1, 150) n`)
	site.Fixture.Exec(`insert into account.memberships (tenant_id, user_id, permissions)
		select $1, id, $2 from account.users where email like 'member.%'`, in, everything)
	site.Fixture.Exec(`insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
			expires_at)
		select gen_random_uuid(), $1, 'invited.' || n || '@example.org', $2, $3, sha256(n::text::bytea),
			now() + interval '1 day' from generate_series(1, 100) n`, in, everything, ada.ID)
	site.Fixture.Exec(`insert into account.sign_ins (id, user_id, method, address, user_agent, expires_at)
		select gen_random_uuid(), $1, 'password', '127.0.0.1', 'A browser', now() + interval '1 day'
		from generate_series(1, 100) n`, ada.ID)
	for _, path := range []string{
		"/settings/user", "/settings/members", "/settings/members/invite",
		"/settings/members/member?id=" + ada.ID.String(), "/settings/developers", "/settings/applications",
		"/settings/webhooks", "/settings/webhooks/new", "/settings/apps", "/settings/connect", "/settings/connectors",
		"/settings/connectors/log", "/settings/security", "/settings/audit",
	} {
		isLight(t, path, browser.Get(path).Wants(http.StatusOK))
	}
}
