package settings_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

// Whoever hears a page and not sees it goes from button to button: each says by itself what it is for.
func TestNoTwoButtonsOfAPageSoundTheSame(t *testing.T) {
	site := browsertest.Start(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first := connect(t, site, ada, app)
	site.Fixture.Exec(
		`update account.grants set created_at = created_at - interval '2 minutes' where id = $1`,
		first.ID,
	)
	connect(t, site, ada, app) // on the same day, or a little after midnight
	browser := site.SignedIn(ada)
	for _, name := range []string{"Night", "Day"} {
		browser.Post(tokens, tokenForm(browser.Get(developers), name, "7", perm.ProgrammesRead))
		browser.Post(apps, appForm(browser.Get(developers), url.Values{"name": {"Sync by " + name}}))
	}
	for _, path := range []string{"/settings/user", developers, "/settings/apps", "/settings/security"} {
		page, heard := browser.Get(path), map[string]bool{}
		for _, button := range append(page.Elements("button"), page.Elements("summary")...) {
			if button.Data == "button" && folded(button) {
				continue // until what it is in is opened, by a button of its own
			}
			name := spoken(button)
			if heard[name] {
				t.Errorf("%s: two are called %q", path, name)
			}
			heard[name] = true
		}
		if len(heard) < 3 && path != "/settings/user" {
			t.Errorf("%s: %v", path, heard)
		}
	}
	if page := browser.Get("/settings/audit"); strings.Contains(page.Body, " download") {
		t.Error("once the session is over, the page to sign in would be saved as the export")
	}
}

func folded(n *html.Node) bool {
	for above := range n.Ancestors() {
		if above.Data == "details" {
			return true
		}
	}
	return false
}

// spoken is what a button is called.
func spoken(n *html.Node) string {
	if label := browsertest.Attribute(n, "aria-label"); label != "" {
		return label
	}
	var out strings.Builder
	for part := range n.Descendants() {
		if part.Type == html.TextNode {
			out.WriteString(part.Data)
		}
	}
	return strings.TrimSpace(out.String())
}
