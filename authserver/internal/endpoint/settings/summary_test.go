package settings_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
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
	page := browser.Get(newToken)
	page.Omits("Error: ", `id="problem"`)
	good := func() url.Values { return tokenForm(page, "export", "7", perm.ProgrammesRead) }
	token := func(field, value string) *browsertest.Page {
		form := good()
		form.Set(field, value)
		return browser.Post(tokens, form)
	}
	summarised("token's name", token("name", ""), "token-name")
	summarised("token's days", token("days", "8"), "token-days")
	summarised("token's permissions", token("permissions", "sudo"), "token-permissions")
	app := func(changes url.Values) *browsertest.Page {
		return browser.Post(apps, appForm(browser.Get(newApp), changes))
	}
	summarised("application's name", app(url.Values{"name": {""}}), "app-name")
	summarised("application's addresses", app(url.Values{"redirect_uris": {""}}), "app-redirects")
	summarised("application's permissions", app(url.Values{"permissions": nil}), "app-permissions")
	summarised("application's method", app(url.Values{"method": {"none"}}), "app-method")
	connector := url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {"https://elsewhere.example"}}
	summarised("connector's resource", app(connector), "app-resource")
	connector["platform"], connector["resource"] = []string{"x"}, []string{browsertest.Resource}
	summarised("connector's platform", app(connector), "app-platform")
	site.Wait(session.Freshness)
	summarised("password for a token", token("password", ""), "password-token")
	summarised("password for an application", app(url.Values{"password": {"wrong"}}), "password-app")
}

// All errors are listed, and the first field gets the focus without a script.
func TestDevelopers_AllProblemsAreListedAtOnce(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for name, c := range map[string]struct {
		page  *browsertest.Page
		first string
		notes []string
	}{
		"token": {
			browser.Post(tokens, tokenForm(browser.Get(newToken), "", "8")), "token-name",
			[]string{"token-name-note", "token-days-note", "token-permissions-note"},
		},
		"token with a name": {
			browser.Post(tokens, tokenForm(browser.Get(newToken), "export", "8")), "token-days",
			[]string{"token-days-note", "token-permissions-note"},
		},
		"application": {
			browser.Post(apps, appForm(browser.Get(newApp), url.Values{
				"name":          {""},
				"kind":          nil,
				"redirect_uris": {"x"},
				"permissions":   nil,
			})),
			"app-name",
			[]string{"app-name-note", "app-kind-note", "app-redirects-note", "app-permissions-note"},
		},
		"connector": {
			browser.Post(apps, appForm(browser.Get(newApp), url.Values{
				"kind":          {"connector"},
				"platform":      {"x"},
				"resource":      {"x"},
				"redirect_uris": {""},
			})),
			"app-platform",
			[]string{"app-platform-note", "app-resource-note", "app-redirects-note"},
		},
		"webhook": {
			browser.Post(webhooks, webhookForm(browser.Get(newHook), "")), "webhook-url",
			[]string{"webhook-url-note", "webhook-types-note"},
		},
	} {
		notes, focused := c.page.All("[class=note]", "id"), c.page.All("[autofocus]", "id")
		if !slices.Equal(notes, c.notes) || !slices.Equal(focused, []string{c.first}) {
			t.Errorf("%s: the notes are %v, the focus is at %v", name, notes, focused)
		}
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
		names := map[string]bool{}
		path += "?tenant=" + site.Fixture.WorkspaceID.String()
		for number, want := range map[string]int{"": 25, "&page=2": 25, "&page=3": 0, "&page=0": 25, "&page=x": 25} {
			page := browser.Get(path + number)
			rows := 0
			for _, h3 := range page.Elements("h3") {
				if h3.FirstChild != nil && strings.HasPrefix(h3.FirstChild.Data, name) {
					rows, names[h3.FirstChild.Data] = rows+1, true
				}
			}
			if rows != want && (want > 0 || rows != 12 && rows != 14) {
				t.Errorf("%s%s: %d rows", path, number, rows)
			}
			t.Logf("%s%s: %d bytes", path, number, len(page.Body))
			if len(page.Body) > 60<<10 {
				t.Errorf("%s%s: %d bytes", path, number, len(page.Body))
			}
		}
		if len(names) != 62 && len(names) != 64 {
			t.Errorf("%s: %d rows on all pages", path, len(names))
		}
		browser.Get(path + "&q=+" + url.QueryEscape(strings.ToUpper(name)) + "61").As(path).Says(name + "61").
			Lacks(name + "60")
		if none := browser.Get(path + "&q=%3Cb%3E"); !none.HasText("matches") || len(none.Elements("b")) != 0 {
			t.Errorf("%s: a search without results: %s", path, none.Text())
		}
	}
}

// A page whose form was refused says so in its title, also if the error is only at a field.
func TestPages_TitleReportsRefusedForm(t *testing.T) {
	site := own(t, func(c *app.Config, _ string) {
		c.SMTPURL, c.MailFrom = "smtp://127.0.0.1:1?tls=none", "Almoner <almoner@example.org>"
	})
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for page, c := range map[string]struct {
		action string
		fields browsertest.Fields
	}{
		"/settings/user":       {"/settings/user/name", browsertest.Fields{"name": ""}},
		"/settings/user/email": {"/settings/user/email", browsertest.Fields{"email": "nowhere"}},
	} {
		browser.Get(page).Send(c.action, c.fields).As(page).Wants(http.StatusBadRequest).Contains("<title>Error: ")
	}
}

// All errors of a form are shown at once, the missing password too, and the first one has the focus.
func TestDevelopers_MissingPasswordIsShownWithOtherErrors(t *testing.T) {
	site := own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	site.Wait(session.Freshness)
	for page, action := range map[string]string{newToken: tokens, newApp: apps, newHook: webhooks} {
		form := browser.Get(page).Form(action)
		form.Set("name", "")
		refused := browser.Post(action, form)
		refused.Wants(http.StatusBadRequest, "Enter your password to continue.")
		if strings.Count(refused.Body, `<li><a href="#`) < 2 || strings.Count(refused.Body, " autofocus") != 1 ||
			strings.Contains(refused.Body, `autocomplete="current-password" autofocus`) {
			t.Errorf("%s: %s", page, refused.Body)
		}
	}
}
