package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/almonerhq/almoner/e2e/harness"
)

// sound fails the test if the browser reported errors or layout faults, or sent requests to other hosts.
func sound(t *testing.T, name string, browser Browser) {
	t.Helper()
	for _, complaint := range browser.Complaints() {
		if !strings.Contains(complaint, "status of 40") { // pages that say what the user lacks
			t.Errorf("%s: error on the console: %s", name, complaint)
		}
	}
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("%s: requests were sent to %v", name, hosts)
	}
}

// looks checks the layout of the open page, on each of the screens if there are some.
func looks(t *testing.T, page string, browser Browser, screens ...harness.Screen) {
	t.Helper()
	for i := range max(1, len(screens)) {
		if len(screens) > 0 {
			browser.Show(screens[i], "light")
		}
		for _, fault := range harness.Evaluate[[]string](browser, layoutFaults) {
			t.Errorf("%s at %d pixels: %s", page, harness.Evaluate[int](browser, `innerWidth`), fault)
		}
	}
}

// silent fails the test if the browser reported errors.
func silent(t *testing.T, browser Browser) {
	t.Helper()
	if complaints := browser.Complaints(); len(complaints) > 0 {
		t.Errorf("errors on the console: %q", complaints)
	}
}

func wantsText(t *testing.T, page string, browser Browser, words ...string) {
	t.Helper()
	text := browser.Text()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s does not say %q: %s", page, w, text)
		}
	}
}

// askButton is the button on the consent page. Its form comes after the form of the decision.
const askButton = `button[form="ask-0"]`

// A reader whose connector could do more asks an administrator from the consent page, on a phone without JavaScript.
// The administrator opens the link in the mail and gives the permission, and the reader goes back to the consent page.
func TestBrowser_AsksAdministrator(t *testing.T) {
	t.Parallel()
	p, box := enterWithMail(t)
	ws := p.NewWorkspace(t)
	reader, owner := ws.Member(t, harness.ReadProgrammes), ws.Owner
	request := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes).Begin().Query
	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.Open(p.AuthorizeURL(request))
	phone.SignIn(reader.Email, reader.Password)
	phone.See(askButton)
	wantsText(t, "the consent page", phone, "Not included", "Add and change programmes")
	looks(t, "the consent page", phone)
	phone.Click(askButton)
	phone.See(`a[href^="/oauth/authorize?"]`)
	wantsText(t, "the answer", phone, "We asked the administrators")
	looks(t, "the answer", phone)

	asked := mailTo(t, box, owner.Email, "Request for access to "+ws.Workspace.Name)
	link := linkIn(t, asked, p.AppURL+"/settings/members/member?")
	office := newBrowser(t, p, harness.Laptop)
	office.Open(link)
	office.SignIn(owner.Email, owner.Password)
	office.See(`input[name=permissions][value="` + harness.WriteProgrammes + `"]:checked`)
	wantsText(t, "the form", office, reader.Email+") asked for access", "Nothing changes until you send it.")
	looks(t, "the form", office)
	office.Click(`form[action="/settings/members/permissions"] button`)
	office.See(".alert-good")

	phone.Click(`a[href^="/oauth/authorize?"]`)
	phone.See(`form[action="/oauth/authorize"]`)
	if text := phone.Text(); strings.Contains(text, "Not included") {
		t.Errorf("the permission is still missing: %s", text)
	}
	sound(t, "phone", phone)
	sound(t, "office", office)
}

// setUp sets up an authenticator app on the open page.
func setUp(t *testing.T, browser Browser) {
	t.Helper()
	browser.See("#setup-key")
	key := strings.ReplaceAll(harness.Evaluate[string](browser, `document.getElementById("setup-key").value`), " ", "")
	met.Add("authenticator key", key)
	code, err := totp.GenerateCode(key, time.Now())
	must(t, err)
	browser.Fill("#code", code)
	browser.Click(`form[action="/settings/security/authenticator"] button.button-main`)
	browser.See(".codes")
	shown := harness.Evaluate[string](browser, `document.querySelector(".codes").value`)
	for _, code := range strings.Fields(shown) {
		met.Add("recovery code", code)
	}
}

// An administrator with a second factor requires it of the workspace. A member who approves an application on a phone
// without JavaScript is led to set one up, and back to the same request.
func TestBrowser_WorkspaceRequiresSecondFactor(t *testing.T) {
	p, ws := inWorkspace(t)
	member := ws.Member(t, harness.ReadProgrammes)
	attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
	office := newBrowser(t, p, harness.Laptop)
	settings := p.AppURL + "/settings/members?tenant=" + ws.Workspace.ID
	office.Open(settings)
	office.SignIn(ws.Owner.Email, ws.Owner.Password)
	office.See(`a[href="/settings/security/authenticator"]`)
	wantsText(t, "the members", office, "2 members have neither a passkey nor an authenticator app.")
	looks(t, "the members", office)
	office.Click(`a[href="/settings/security/authenticator"]`)
	setUp(t, office)
	office.Open(settings)
	office.Click(`form[action="/settings/members/second-factor"] button`)
	office.See(".alert-good")
	wantsText(t, "the members", office, "need a second factor now", "1 member has neither")

	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.Open(p.AuthorizeURL(attempt.Query))
	phone.SignIn(member.Email, member.Password)
	const way = `a[href^="/settings/security/authenticator?return="]`
	phone.See(way)
	wantsText(t, "the refusal", phone, ws.Workspace.Name+" requires a second factor", "You have neither yet.")
	looks(t, "the refusal", phone)
	phone.Click(way)
	setUp(t, phone)
	looks(t, "the recovery codes", phone)
	phone.Click(`a[href^="/oauth/authorize?"]`)
	phone.See(`form[action="/oauth/authorize"]`)
	wantsText(t, "the consent page", phone, ws.Workspace.Name, "See programmes")
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, 200) // API credentials keep working
	sound(t, "phone", phone)
	sound(t, "office", office)
}
