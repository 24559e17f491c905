package settings_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// navigation returns the targets of the navigation links.
func navigation(page *browsertest.Page) []string {
	var out []string
	for _, nav := range page.Elements("nav") {
		for n := range nav.Descendants() {
			if n.Data == "a" {
				out = append(out, browsertest.Attribute(n, "href"))
			}
		}
	}
	return out
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
	everywhere := site.Member(perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers)
	site.Fixture.Join(elsewhere, everywhere.ID, perm.AccountAPIAccess)
	another := site.SignedIn(everywhere)
	for _, path := range []string{developers, newToken, applications, newApp, hooks, newHook, connectors} {
		other := "?tenant=" + elsewhere.String()
		if got := navigation(another.Get(path + other)); !slices.Contains(got, members+other) {
			t.Errorf("%s lacks a page of the user's other workspace: %v", path+other, got)
		}
	}
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
		other := site.SignedIn(mixed).Get(here).Wants(http.StatusForbidden, "Hillside Youth Club")
		if !slices.Contains(navigation(other), here) {
			t.Errorf("%s is not in the navigation: %s", here, other.Text())
		}
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
