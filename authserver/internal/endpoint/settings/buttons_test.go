package settings_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

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
		browser.Post(tokens, tokenForm(browser.Get(newToken), name, "7", perm.ProgrammesRead))
		browser.Post(apps, appForm(browser.Get(newApp), url.Values{"name": {"Sync by " + name}}))
	}
	for _, path := range []string{"/settings/user", developers, "/settings/apps", "/settings/security"} {
		page, names := browser.Get(path), map[string]bool{}
		for _, button := range append(page.Elements("button"), page.Elements("summary")...) {
			if button.Data == "button" && folded(button) {
				continue // hidden until its details element is opened, by a summary with its own name
			}
			name := spoken(button)
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

func folded(n *html.Node) bool {
	for above := range n.Ancestors() {
		if above.Data == "details" {
			return true
		}
	}
	return false
}

// spoken returns the accessible name of a button.
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
