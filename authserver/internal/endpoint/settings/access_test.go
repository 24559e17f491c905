package settings_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

const (
	developers = "/settings/developers"
	tokens     = developers + "/tokens"
	apps       = developers + "/apps"
	webhooks   = developers + "/webhooks"

	newToken     = developers + "/new"
	applications = "/settings/applications"
	newApp       = applications + "/new"
	hooks        = "/settings/webhooks"
	newHook      = hooks + "/new"

	connectors = "/settings/connectors"
	members    = "/settings/members"
)

// posts are the paths of every form.
var posts = []string{
	tokens, tokens + "/replace", tokens + "/revoke", apps, apps + "/secret", apps + "/delete",
	"/settings/apps/disconnect", "/settings/apps/disconnect-all", "/settings/security/sign-out",
	"/settings/security/sign-out-others", "/settings/security/tokens/revoke", connectors + "/policy",
	connectors + "/disconnect", connectors + "/llm", authenticatorPath, authenticatorPath + "/codes",
	authenticatorPath + "/remove", members + "/invite", members + "/renew", members + "/withdraw",
	members + "/permissions", members + "/remove", members + "/leave", members + "/second-factor", namePath, deletePath,
	"/settings/user/email", "/settings/security/mails", "/settings/security/password",
	"/settings/security/password/remove", "/settings/passkey-offer", "/settings/workspace", webhooks,
	webhooks + "/delete", webhooks + "/disable", webhooks + "/enable", webhooks + "/test", webhooks + "/resend",
	webhooks + "/secret", webhooks + "/personal-data",
}

// pages returns every page of the settings, and the export.
func pages() []string {
	return append(links(perm.AccountAPIAccess, perm.AccountReadMembers), "/settings/audit.jsonl", "/settings/audit.csv",
		connectionLog, connectionLog+".jsonl", connectionLog+".csv", members+"/member", members+"/invite", newToken,
		applications, newApp, hooks, newHook)
}

// links returns the targets of the navigation, for a user with these permissions in a workspace.
func links(held ...perm.Permission) []string {
	var out []string
	for _, section := range settings.Sections() {
		if section.Parent == "" && (section.Needs == "" || slices.Contains(held, section.Needs)) {
			out = append(out, section.Path())
		}
	}
	return out
}

// pageOf returns the page that has the form to a path.
func pageOf(form string) string {
	switch {
	case form == tokens:
		return newToken
	case form == apps:
		return newApp
	case strings.HasPrefix(form, apps):
		return applications
	case strings.HasPrefix(form, webhooks):
		return newHook
	}
	return strings.Join(strings.SplitN(form, "/", 4)[:3], "/")
}

// TestPosts_AreEveryForm checks that the tests of all forms miss none.
func TestPosts_AreEveryForm(t *testing.T) {
	t.Parallel()
	s, err := settings.New(settings.Deps{
		Store: settings.Store{Logs: struct{ settings.Logs }{}},
		Pages: &ui.Pages{},
		Keys:  seal.NewKeys(make([]byte, 32)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for path, byMethod := range s.Routes() {
		if byMethod[http.MethodPost] != nil {
			want = append(want, path)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(posts)); !slices.Equal(got, want) {
		t.Errorf("the forms are %q, want %q", got, want)
	}
}

func developer(site *browsertest.Server, more ...perm.Permission) browsertest.Person {
	return site.Member(append(more, perm.AccountAPIAccess)...)
}

func TestSettings_SignedOutUserIsSentToSignIn(t *testing.T) {
	site := shared(t)
	for _, path := range append(pages(), developers+"?tenant=x") {
		site.Browser().Get(path).As(path).LeadsTo("/login?return=" + url.QueryEscape(path))
	}
	for _, path := range posts {
		if page := site.Browser().Post(path, url.Values{}); page.Status != http.StatusSeeOther ||
			!strings.HasPrefix(page.Location(), "/login?return=") {
			t.Errorf("POST %s: %d to %q", path, page.Status, page.Location())
		}
	}
	site.SignedIn(site.Stranger()).Get("/settings").LeadsTo("/settings/user")
}

func TestForms_OfOtherSessionOrSiteAreRefused(t *testing.T) {
	site := shared(t)
	ada := developer(site)
	browser := site.SignedIn(ada)
	own := browser.Get(newToken).Form(tokens).Get("key")
	foreign := site.SignedIn(ada).Get(newToken).Form(tokens).Get("key")
	here := []string{site.Fixture.WorkspaceID.String()}
	for _, path := range posts {
		for name, key := range map[string]string{"no key": "", "rubbish": "x", "another session's": foreign} {
			browser.Post(path, url.Values{"key": {key}, "tenant": here}).As(path, name).Wants(http.StatusForbidden)
		}
		browser.Headers = http.Header{"Sec-Fetch-Site": {"cross-site"}}
		browser.Post(path, url.Values{"key": {own}, "tenant": here}).As(path).Wants(http.StatusForbidden)
		browser.Headers = http.Header{}
	}
	site.CountIs(0, `select count(*) from account.sign_ins where ended_at is not null and user_id = $1`, ada.ID)
}

// A user whose session ended before the form was sent sees on the sign-in page that nothing was changed.
func TestForms_SentAfterSessionEndedAreReportedAtSignIn(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	const words = "You were signed out. Nothing was changed, and your input was not saved."
	form := tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)
	site.Fixture.Exec(`update account.sign_ins set ended_at = now() where user_id = $1`, ada.ID)
	browser.Get(developers).Follow().Lacks(words)
	signIn := browser.Post(tokens, form).Follow()
	signIn.Wants(http.StatusOK, words)
	back := signIn.Send("/login", browsertest.Fields{"email": ada.Email, "password": browsertest.Password})
	if to := developers + "?tenant=" + site.Fixture.WorkspaceID.String(); back.Location() != to ||
		back.Follow().HasText(words) {
		t.Errorf("sign-in leads to %q, want %q", back.Location(), to)
	}
	site.Rows(0, "personal_access_tokens", "")
}

func TestPages_NeedAPIAccessInTheirWorkspace(t *testing.T) {
	site := shared(t)
	here, elsewhere := site.Fixture.WorkspaceID.String(), site.Fixture.Workspace("Hillside Youth Club")
	reader, mixed := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Fixture.Join(elsewhere, mixed.ID, perm.AccountAPIAccess)
	for _, path := range []string{
		developers, newToken, applications, newApp, hooks, newHook, "/settings/audit", "/settings/audit.jsonl",
		connectors, connectionLog, connectionLog + ".csv",
	} {
		for name, c := range map[string]struct {
			who       browsertest.Person
			workspace string
			status    int
		}{
			"no access anywhere":    {reader, "", 403},
			"no access here":        {mixed, here, 403},
			"unknown workspace":     {mixed, uuid.NewString(), 403},
			"no identifier":         {mixed, "x", 403},
			"not a member":          {reader, elsewhere.String(), 403},
			"access there":          {mixed, elsewhere.String(), 200},
			"the first with access": {mixed, "", 200},
		} {
			to := path
			if c.workspace != "" {
				to += "?tenant=" + url.QueryEscape(c.workspace)
			}
			site.SignedIn(c.who).Get(to).As(path, name).Wants(c.status)
		}
	}
	browser := site.SignedIn(mixed)
	key := browser.Get(newToken).Form(tokens).Get("key")
	for _, path := range posts {
		if !strings.HasPrefix(path, developers) && !strings.HasPrefix(path, connectors) {
			continue
		}
		form := url.Values{"key": {key}, "tenant": {here}, "id": {uuid.NewString()}}
		browser.Post(path, form).As(path).Wants(http.StatusForbidden)
	}
}

func TestUser_ShowsNameAndWorkspaceIDs(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	site.Fixture.Join(elsewhere, ada.ID, perm.ProgrammesRead)
	site.SignedIn(ada).Get("/settings/user").
		Says("Ada Okafor", ada.Email, "Riverside Food Bank", "Hillside Youth Club").
		Selects(`input[value="`+site.Fixture.WorkspaceID.String()+`"]`, `input[value="`+elsewhere.String()+`"]`)
	site.SignedIn(site.Stranger()).Get("/settings/user").Says("not a member of any workspace")
}

func TestPages_OutageIs503(t *testing.T) {
	site := own(t)
	browser := site.SignedIn(developer(site))
	restore := site.CutPostgres()
	defer restore()
	for _, path := range pages() {
		browser.Get(path).As(path).Wants(http.StatusServiceUnavailable)
	}
	for _, path := range posts {
		browser.Post(path, url.Values{}).As(path).Wants(http.StatusServiceUnavailable)
	}
}
