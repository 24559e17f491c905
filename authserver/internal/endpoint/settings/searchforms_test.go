package settings_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A page that answers a form has the path of the form, which has no GET. Its search must lead elsewhere.
func TestSearchForms_WorkOnPagesThatAnswerForms(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountWriteMembers)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	for range 6 {
		site.Member(perm.ProgrammesRead)
	}
	browser := site.SignedIn(ada)
	in := "?tenant=" + site.Fixture.WorkspaceID.String()
	invitation := browser.Get(members + "/invite" + in).Form(members + "/invite")
	invitation.Set("email", "kim@example.org")
	invitation.Set("permissions", string(perm.ProgrammesRead))
	for name, page := range map[string]*browsertest.Page{
		"connections": browser.Post(connectors+"/policy", policyForm(browser.Get(connectors), "", anyPlatform)),
		"members":     browser.Post(members+"/invite", invitation),
	} {
		searches := 0
		for _, form := range page.Elements("form") {
			if browsertest.Attribute(form, "role") != "search" {
				continue
			}
			searches++
			action := browsertest.Attribute(form, "action")
			if found := browser.Get(action + in + "&q=ada"); action == "" || found.Status != http.StatusOK {
				t.Errorf("%s: %q: %d", name, action, found.Status)
			}
		}
		if searches != 1 {
			t.Errorf("%s: %d searches: %d %s", name, searches, page.Status, page.Text())
		}
	}
}
