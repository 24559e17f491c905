package settings_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

// inTwo is somebody who manages API access in the world's workspace and in a second one, whose name comes first.
func inTwo(site *browsertest.Site) (browsertest.Person, string) {
	ada, first := developer(site, perm.ProgrammesRead), site.World.Tenant("Abbey Lane Larder")
	site.World.Join(first, ada.ID, perm.AccountAPIAccess)
	return ada, first.String()
}

// After a form the page stands at the form's address, which opens nothing.
func TestTheWorkspaceIsChosenAtTheAddressOfThePage(t *testing.T) {
	site := browsertest.Start(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	bad := browser.Post(connectors+"/policy", policyForm(browser.Get(connectors), "31", anyPlatform, perm.ProgrammesRead))
	for section, page := range map[string]*browsertest.Page{
		developers: browser.Post(tokens, browser.Get(developers).Form(tokens)), connectors: bad, "/settings/audit": browser.Get("/settings/audit"),
	} {
		choosers := 0
		for _, form := range page.Elements("form") {
			if browsertest.Attribute(form, "class") != "chooser" {
				continue
			}
			choosers++
			if at := browsertest.Attribute(form, "action"); at != section || browser.Get(at+"?tenant="+first).Status != http.StatusOK {
				t.Errorf("on the page %s a workspace is chosen at %q", section, at)
			}
		}
		if choosers != 1 {
			t.Errorf("%s: %d %d choosers", section, page.Status, choosers)
		}
	}
}
