package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// An administrator invites a person, who creates an account without JavaScript on a phone, uses the workspace, and is
// removed again.
func TestBrowser_InvitesAndAccepts(t *testing.T) {
	p, ws := inWorkspace(t)
	sam := demo.User{Email: strings.ToLower("sam." + ws.Owner.ID + "@example.org"), Password: "three small boats"}
	office := newBrowser(t, p, harness.Laptop)
	office.Open(p.AppURL + "/settings/members/invite?tenant=" + ws.Workspace.ID)
	office.SignIn(ws.Owner.Email, ws.Owner.Password)
	office.Fill("#invite-email", sam.Email)
	office.Press(EnterKey) // invites, without permissions: the form comes back
	office.See("#invite-permissions-note")
	office.Click(`button[name=preset][value=sees]`)
	office.See(`input[name=permissions][value="` + harness.ReadProgrammes + `"]:checked`)
	office.Click(`form[action="/settings/members/invite"] .button-main`)
	office.See("#invitation-link")
	link := harness.Evaluate[string](office, `document.getElementById("invitation-link").value`)
	_, token, _ := strings.Cut(link, "?token=")
	met.Add("invitation token", token)
	met.Add("password", sam.Password)

	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.Open(link)
	for _, words := range []string{ws.Workspace.Name, sam.Email, "See programmes"} {
		if text := phone.Text(); !strings.Contains(text, words) {
			t.Errorf("the invitation does not say %q: %s", words, text)
		}
	}
	phone.Fill("#name", "Sam Reed")
	phone.Fill("#password", sam.Password)
	phone.Click(`form[action="/invitation/account"] button`)
	phone.See(".alert-good")
	wantsText(t, "after the invitation", phone, "You are now a member of "+ws.Workspace.Name)
	phone.Open(link)
	wantsText(t, "the link a second time", phone, "You are already a member of "+ws.Workspace.Name)

	office.Open(p.AppURL + "/settings/members?tenant=" + ws.Workspace.ID)
	sam.ID = p.Database.Text(t, `select id::text from account.users where email = $1`, sam.Email)
	office.Click(`a[href$="id=` + sam.ID + `"]`)
	office.Click(`form[action="/settings/members/remove"] button`)
	office.Click(`input[name=confirm] ~ button`)
	office.See(".alert-good")
	if n := p.Database.Count(t, `select count(*) from account.memberships where user_id = $1`, sam.ID); n != 0 {
		t.Error("the person is still a member")
	}
	for name, browser := range map[string]Browser{"office": office, "phone": phone} {
		for _, complaint := range browser.Complaints() {
			if !strings.Contains(complaint, "status of 40") { // the form that came back, and the used link
				t.Errorf("%s: error on the console: %s", name, complaint)
			}
		}
		if hosts := browser.Hosts(); len(hosts) != 1 {
			t.Errorf("%s: requests were sent to %v", name, hosts)
		}
	}
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
}
