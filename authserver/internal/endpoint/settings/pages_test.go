package settings_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

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

// Permissions as forms send them.
const (
	reading  = string(perm.ProgrammesRead)
	writing  = string(perm.ProgrammesWrite)
	managing = string(perm.AccountAPIAccess)
)

// posts are the paths of every form.
var posts = []string{
	tokens, tokens + "/replace", tokens + "/revoke", apps, apps + "/secret", apps + "/delete",
	"/settings/apps/disconnect", "/settings/apps/disconnect-all", "/settings/security/sign-out",
	"/settings/security/sign-out-others", "/settings/security/tokens/revoke", connectors + "/policy",
	connectors + "/disconnect", connectors + "/llm", connectors + "/connection", connectors + "/token",
	connectors + "/usage", "/settings/apps/app", authenticatorPath, authenticatorPath + "/codes",
	authenticatorPath + "/codes.txt", authenticatorPath + "/remove", members + "/invite", members + "/renew",
	members + "/withdraw", members + "/requests",
	members + "/permissions", members + "/remove", members + "/leave", members + "/second-factor", namePath, deletePath,
	"/settings/user/email", "/settings/user/mails", "/settings/security/mails", "/settings/security/password",
	"/settings/security/password/remove", "/settings/passkey-offer", webhooks,
	webhooks + "/delete", webhooks + "/disable", webhooks + "/enable", webhooks + "/test", webhooks + "/resend",
	webhooks + "/secret", webhooks + "/personal-data", webhooks + "/events",
}

// pages returns every page of the settings, and the export.
func pages() []string {
	return append(links(perm.AccountAPIAccess, perm.AccountReadMembers), "/settings/audit.jsonl", "/settings/audit.csv",
		connectionLog, connectionLog+".jsonl", connectionLog+".csv", members+"/member", members+"/invite", newToken,
		applications, newApp, hooks, newHook, "/settings/welcome", "/settings/security/sessions",
		"/settings/security/events", ownTokens, connectors+"/connection", connectors+"/token", connectors+"/usage",
		"/settings/apps/app", "/settings/tokens/token")
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
	case form == connectors+"/usage":
		return form
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
	must(t, err)
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

// ofDevelopers are the forms about API access.
func ofDevelopers() []string {
	return slices.DeleteFunc(slices.Clone(posts), func(path string) bool {
		return !strings.HasPrefix(path, developers) && !strings.HasPrefix(path, connectors)
	})
}

func developer(site *browsertest.Server, more ...perm.Permission) browsertest.Person {
	return site.Member(append(more, perm.AccountAPIAccess)...)
}

// developerElsewhere returns a user who manages API access in another workspace, Hillside Youth Club, alone.
func developerElsewhere(site *browsertest.Server) browsertest.Person {
	eve := site.Stranger()
	site.Fixture.Join(site.Fixture.Workspace("Hillside Youth Club"), eve.ID, perm.AccountAPIAccess)
	return eve
}

// with returns a form with other values: - stands for none.
func with(form url.Values, pairs ...string) url.Values {
	out := maps.Clone(form)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []string{pairs[i+1]}
		if pairs[i+1] == "-" {
			out[pairs[i]] = nil
		}
	}
	return out
}

func TestSettings_SignedOutUserIsSentToSignIn(t *testing.T) {
	site := shared(t)
	for _, path := range append(pages(), developers+"?tenant=x") {
		site.Browser().Get(path).As(path).LeadsTo("/login?return=" + url.QueryEscape(path))
	}
	stranger := site.Browser()
	for _, path := range posts {
		if page := stranger.Post(path, url.Values{}).Wants(http.StatusSeeOther); !strings.HasPrefix(page.Location(),
			"/login?return=") {
			t.Errorf("POST %s leads to %q", path, page.Location())
		}
	}
	site.SignedIn(site.Stranger()).Get("/settings").LeadsTo("/settings/user")
}

// A user whose session ended before the form was sent sees on the sign-in page that nothing was changed.
func TestForms_SentAfterSessionEndedAreReportedAtSignIn(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
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
	reads := site.SignedIn(reader)
	for _, path := range []string{
		developers, newToken, applications, newApp, hooks, newHook, "/settings/audit", "/settings/audit.jsonl",
		connectors, connectionLog, connectionLog + ".csv",
	} {
		manages := site.SignedIn(mixed) // and has chosen no workspace
		manages.Get(path).As(path, "the first with access").Wants(200)
		reads.Get(path).As(path, "no access anywhere").Wants(403)
		reads.Get(path+"?tenant="+elsewhere.String()).As(path, "not a member").Wants(403)
		for workspace, status := range map[string]int{
			here: 403, uuid.NewString(): 403, "x": 403, elsewhere.String(): 200,
		} {
			manages.Get(path+"?tenant="+workspace).As(path, workspace).Wants(status)
		}
	}
	browser := site.SignedIn(mixed)
	key := browser.Get(newToken).Form(tokens).Get("key")
	for _, path := range ofDevelopers() {
		form := url.Values{"key": {key}, "tenant": {here}, "id": {uuid.NewString()}}
		browser.Post(path, form).As(path).Wants(http.StatusForbidden)
	}
	site.Rows(0, "connector_policies", "")
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

// navigation returns the paths of the navigation's links, but for those to other workspaces.
func navigation(page *browsertest.Page) (paths []string) {
	for _, link := range page.All("nav.sections > ul a", "href") {
		path, _, _ := strings.Cut(link, "?")
		paths = append(paths, path)
	}
	return paths
}

func TestNavigation_LinksPagesThatUserMayOpen(t *testing.T) {
	site := shared(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	reader, mixed := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Fixture.Join(elsewhere, mixed.ID, perm.ProgrammesRead, perm.AccountAPIAccess)
	basic, all := links(), links(perm.AccountAPIAccess)
	for _, path := range []string{developers, connectors, "/settings/audit"} {
		if slices.Contains(basic, path) || !slices.Contains(all, path) {
			t.Errorf("%s must be only for users who manage a workspace", path)
		}
	}
	for name, c := range map[string]struct {
		who  browsertest.Person
		want []string
	}{
		"manages nothing":            {reader, basic},
		"is a member of nothing":     {site.Stranger(), basic},
		"manages one of two":         {mixed, all},
		"manages the only workspace": {developer(site), all},
	} {
		browser := site.SignedIn(c.who)
		for _, at := range basic {
			page := browser.Get(at)
			if got := navigation(page); page.Status != http.StatusOK || !slices.Equal(got, c.want) {
				t.Errorf("%s, at %s: %d %v", name, at, page.Status, got)
			}
		}
	}
	browser := site.SignedIn(mixed)
	site.Fixture.Exec(`update account.memberships set permissions = '{}' where user_id = $1`, mixed.ID)
	if got := navigation(browser.Get("/settings/user")); !slices.Equal(got, basic) {
		t.Errorf("after the permission was removed: %v", got)
	}
}

func TestNavigation_RefusalPageLinksOtherPages(t *testing.T) {
	site := shared(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	reader, mixed := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Fixture.Join(elsewhere, mixed.ID, perm.AccountAPIAccess)
	for _, path := range []string{developers, connectors, "/settings/audit"} {
		page := site.SignedIn(reader).Get(path)
		page.Wants(http.StatusForbidden, "You cannot manage API access in this workspace", "Manage API access").
			Times(1, "<h1").Times(1, "<main")
		if got := navigation(page); !slices.Equal(got, links()) {
			t.Errorf("%s: the navigation is %v", path, got)
		}
		here := path + "?tenant=" + site.Fixture.WorkspaceID.String()
		site.SignedIn(mixed).Get(here).Wants(http.StatusForbidden).
			Contains(`<a href="` + path + "?tenant=" + elsewhere.String() + `">Hillside Youth Club</a>`)
		for _, unknown := range []string{uuid.NewString(), "x", site.Fixture.Workspace("Abbey Lane Larder").String()} {
			page := site.SignedIn(mixed).Get(path + "?tenant=" + unknown)
			page.Wants(http.StatusForbidden, "You are not a member of this workspace", "Hillside Youth Club")
			page.As(path).Lacks("Abbey Lane Larder", "Ask an administrator")
		}
	}
}

// The title of a page below a section is its heading.
func TestPages_TitleOfSubpageIsItsHeading(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range append(pages(), memberPath(site, ada), "/settings/user/email", "/settings/user/delete",
		"/settings/security/password", authenticatorPath, "/settings/passkeys") {
		page := browser.Get(path)
		headings := page.Elements("h1")
		if len(headings) == 0 || path == applications || path == hooks { // a download; tabs of one section
			continue
		}
		heading, title := browsertest.TextOf(headings[0]), browsertest.TextOf(page.Elements("title")[0])
		if !strings.HasPrefix(title, heading+" · ") {
			t.Errorf("%s: the heading is %q, the title %q", path, heading, title)
		}
	}
}

// A user of a screen reader moves from button to button, so each name must be distinct.
func TestPages_ButtonNamesAreDistinct(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first := site.Redeemed(app, ada.ID)
	site.Fixture.Exec(`update account.grants set created_at = created_at - interval '2 minutes' where id = $1`,
		first.ID)
	site.Redeemed(app, ada.ID) // on the same day, or just after midnight
	browser := site.SignedIn(ada)
	for _, name := range []string{"Night", "Day"} {
		makeToken(browser, name, "7", perm.ProgrammesRead)
		register(browser, url.Values{"name": {"Sync by " + name}})
	}
	for _, path := range []string{"/settings/user", developers, "/settings/apps", ownTokens} {
		page, names := browser.Get(path), map[string]bool{}
		// Buttons in a details element are hidden until it is opened, by a summary with its own name.
		visible := slices.DeleteFunc(page.Elements("button"), func(button *html.Node) bool {
			return slices.ContainsFunc(slices.Collect(button.Ancestors()), func(above *html.Node) bool {
				return above.Data == "details"
			})
		})
		for _, button := range append(visible, page.Elements("summary")...) {
			name := cmp.Or(browsertest.Attribute(button, "aria-label"), browsertest.TextOf(button))
			if names[name] {
				t.Errorf("%s: two are called %q", path, name)
			}
			names[name] = true
		}
		if len(names) < 3 && path != "/settings/user" {
			t.Errorf("%s: %v", path, names)
		}
	}
	browser.Get("/settings/audit").Omits(" download")
}

// contents returns the contents of the files that match.
func contents(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files match %s: %v", len(files), pattern, err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		all.Write(content)
	}
	return all.String()
}

// TestFields_AreUsedAndOnPages checks that each field of the table is named in the source, by its name or by the form
// before it, and that a page has it and shows its error.
func TestFields_AreUsedAndOnPages(t *testing.T) {
	t.Parallel()
	source, pages := contents(t, "*.go"), contents(t, "../ui/templates/*.html")
	var fields map[string]struct{ Field, At, Label string }
	content, err := os.ReadFile("fields.json")
	if err == nil {
		err = json.Unmarshal(content, &fields)
	}
	if err != nil || len(fields) == 0 {
		t.Fatal(err)
	}
	for name, field := range fields {
		form, _, _ := strings.Cut(name, " ")
		if !strings.Contains(source, `("`+name+`", `) && !strings.Contains(source, `("`+form+` "+`) {
			t.Errorf("%q is not used", name)
		}
		if field.Label == "" || !strings.Contains(pages, `id="`+field.At+`"`) ||
			!strings.Contains(pages, `.Of "`+field.Field+`"`) {
			t.Errorf("%q is not on a page: %+v", name, field)
		}
	}
}
