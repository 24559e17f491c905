package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// sound fails the test if the browser reported errors, or sent requests to other hosts. Pages with the statuses are
// allowed: they say what the user lacks.
func sound(t *testing.T, name string, browser Browser, statuses ...int) {
	t.Helper()
	for _, complaint := range browser.Complaints() {
		if !slices.ContainsFunc(statuses, func(status int) bool {
			return strings.Contains(complaint, fmt.Sprintf("status of %d ", status))
		}) {
			t.Errorf("%s: error on the console: %s", name, complaint)
		}
	}
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("%s: requests were sent to %v", name, hosts)
	}
}

// looks checks the layout of the open page. The pages of the tour are checked there.
func looks(t *testing.T, page string, browser Browser) {
	t.Helper()
	for _, fault := range harness.Evaluate[[]string](browser, layoutFaults) {
		t.Errorf("%s at %d pixels: %s", page, harness.Evaluate[int](browser, `innerWidth`), fault)
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
	p, ws, box := withMail(t)
	reader, owner := ws.Member(t, harness.ReadProgrammes), ws.Owner
	request := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes).Begin().Query
	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.OpenAs(reader, p.AuthorizeURL(request))
	phone.See(askButton)
	wantsText(t, "the consent page", phone, "Not included", "Add and change programmes")
	looks(t, "the consent page", phone)
	phone.ClickAndSee(askButton, `a[href^="/oauth/authorize?"]`)
	wantsText(t, "the answer", phone, "We asked the administrators")
	looks(t, "the answer", phone)

	asked := mailTo(t, box, owner.Email, "Request for access to "+ws.Workspace.Name)
	link := linkIn(t, asked, p.AppURL+"/settings/members/member?")
	office := newBrowser(t, p, harness.Laptop)
	office.OpenAs(owner, link)
	office.See(`input[name=permissions][value="` + harness.WriteProgrammes + `"]:checked`)
	wantsText(t, "the form", office, reader.Email+") asked for access", "Nothing changes until you save.")
	looks(t, "the form", office)
	office.ClickAndSee(`form[action="/settings/members/permissions"] button`, ".alert-good")

	phone.ClickAndSee(`a[href^="/oauth/authorize?"]`, `form[action="/oauth/authorize"]`)
	if text := phone.Text(); strings.Contains(text, "Not included") {
		t.Errorf("the permission is still missing: %s", text)
	}
	sound(t, "phone", phone, http.StatusBadRequest) // a short password
	sound(t, "office", office)
}

// setUp sets up an authenticator app on the open page, which shows the recovery codes then.
func setUp(t *testing.T, browser Browser) {
	t.Helper()
	browser.See("#setup-key")
	if width := harness.Evaluate[int](browser, `document.querySelector("img.qr").naturalWidth`); width != 200 {
		t.Errorf("the QR code is %d pixels wide", width)
	}
	key := harness.Evaluate[string](browser, `document.getElementById("setup-key").value.replaceAll(" ", "")`)
	met.Add("authenticator key", key)
	code, err := totp.GenerateCode(key, time.Now())
	must(t, err)
	browser.Fill("#code", code)
	browser.ClickAndSee(`form[action="/settings/security/authenticator"] button.button-main`, ".codes")
	recovery := harness.Evaluate[string](browser, `document.querySelector(".codes").value`)
	for code := range strings.FieldsSeq(recovery) {
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
	office.OpenAs(ws.Owner, settings)
	office.See(`a[href="/settings/security/authenticator"]`)
	wantsText(t, "the members", office, "2 members have neither a passkey nor an authenticator app.")
	looks(t, "the members", office)
	office.Click(`a[href="/settings/security/authenticator"]`)
	setUp(t, office)
	for _, way := range []string{"[data-copy]", `form[action$="/codes.txt"] button`, "[data-print]"} {
		office.See(way)
	}
	office.Open(settings)
	office.ClickAndSee(`form[action="/settings/members/second-factor"] button`, ".alert-good")
	wantsText(t, "the members", office, "need two-step sign-in now", "1 member has neither")

	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.OpenAs(member, p.AuthorizeURL(attempt.Query))
	const way = `a[href^="/settings/security/authenticator?return="]`
	phone.See(way)
	wantsText(t, "the refusal", phone, ws.Workspace.Name+" requires two-step sign-in", "You have neither yet.")
	looks(t, "the refusal", phone)
	phone.Click(way)
	setUp(t, phone)
	phone.See(`form[action$="/codes.txt"] button`) // which needs no script
	phone.ClickAndSee(`a[href^="/oauth/authorize?"]`, `form[action="/oauth/authorize"]`)
	wantsText(t, "the consent page", phone, ws.Workspace.Name, "See programmes")
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, 200) // API credentials keep working
	sound(t, "phone", phone, http.StatusForbidden)                // the refusal
	sound(t, "office", office)
}

// A person changes the address of their account with the links in two mails, signs in with it, and deletes the account,
// on a phone without JavaScript.
func TestBrowser_ChangesAddressAndDeletesAccount(t *testing.T) {
	p, ws, box := withMail(t)
	user := ws.Member(t, harness.ReadProgrammes)
	now := demo.User{ID: user.ID, Email: "new." + user.Email, Password: user.Password}
	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.OpenAs(user, p.AppURL+"/settings/user/email")
	phone.Fill("#email", now.Email)
	phone.Press(EnterKey)
	phone.See(".alert-good")
	for address, subject := range map[string]string{
		user.Email: "Confirm the change of your e-mail address",
		now.Email:  "Confirm your new e-mail address",
	} {
		link := linkIn(t, mailTo(t, box, address, subject), p.AppURL+"/email?token=")
		_, token, _ := strings.Cut(link, "token=")
		met.Add("link", token)
		phone.Open(link)
		phone.Open(link) // opening it changes nothing
		phone.Click(`button[value=confirm]`)
		phone.Leave(`button[value=confirm]`)
	}
	wantsText(t, "after both links", phone, "The address was changed")
	mailTo(t, box, user.Email, "Your e-mail address was changed")

	laptop := newBrowser(t, p, harness.Laptop)
	laptop.OpenAs(now, p.AppURL+"/settings/user")
	phone.Open(p.AppURL + "/settings/user")
	phone.ClickAndSee(`a[href="/settings/user/delete"]`, "#confirm")
	wantsText(t, "the page", phone, ws.Workspace.Name)
	phone.ClickAndSee(`form[action="/settings/user/delete"] button`, "#confirm-note")
	phone.Click("#confirm")
	phone.ClickAndSee(`form[action="/settings/user/delete"] button`, `form[action="/login"]`)
	wantsText(t, "after the deletion", phone, "Your account was deleted")
	mailTo(t, box, now.Email, "Your account was deleted")
	laptop.OpenAndSee(p.AppURL+"/settings/user", `form[action="/login"]`)
	if n := p.Database.Count(t, `select count(*) from account.users where email in ($1, $2)`, user.Email,
		now.Email); n != 0 {
		t.Error("the address is still there")
	}
}

// An administrator invites a person, who creates an account without JavaScript on a phone, uses the workspace, and is
// removed again.
func TestBrowser_InvitesAndAccepts(t *testing.T) {
	p, ws := inWorkspace(t)
	sam := demo.User{Email: strings.ToLower("sam." + ws.Owner.ID + "@example.org"), Password: "three small boats"}
	office := newBrowser(t, p, harness.Laptop)
	office.OpenAs(ws.Owner, p.AppURL+"/settings/members/invite?tenant="+ws.Workspace.ID)
	office.Fill("#invite-email", sam.Email)
	const send = `form[action="/settings/members/invite"] .button-main`
	office.ClickAndSee(send, "#invite-permissions-note") // without permissions: the form comes back
	read := `input[name=permissions][value="` + harness.ReadProgrammes + `"]`
	office.Click(`input[name=preset][value=viewer]`)
	office.See(read + ":checked")
	office.See(`input[name=permissions][value="` + harness.WriteProgrammes + `"]:not(:checked)`)
	office.Click(read)
	office.See(`input[name=preset][value=custom]:checked`)
	office.Click(read)
	office.See(`input[name=preset][value=viewer]:checked`)
	office.ClickAndSee(send, "#invitation-link")
	link := harness.Evaluate[string](office, `document.getElementById("invitation-link").value`)
	_, token, _ := strings.Cut(link, "?token=")
	met.Add("invitation token", token)
	met.Add("password", sam.Password)

	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.Open(link)
	wantsText(t, "the invitation", phone, ws.Workspace.Name, sam.Email, "See programmes")
	phone.Fill("#name", "Sam Reed")
	const join = `form[action="/invitation/account"] button`
	phone.Fill("#password", "short")
	phone.ClickAndSee(join, "#password-note")
	if at := phone.Focused(); at != "Password" {
		t.Errorf("after a short password, the focus is on %q", at)
	}
	phone.Fill("#password", sam.Password)
	phone.ClickAndSee(join, ".alert-good")
	wantsText(t, "after the invitation", phone, "You are now a member of "+ws.Workspace.Name)
	phone.Open(link)
	wantsText(t, "the link a second time", phone, "You are already a member of "+ws.Workspace.Name)

	office.Open(p.AppURL + "/settings/members?tenant=" + ws.Workspace.ID)
	sam.ID = p.Database.Text(t, `select id::text from account.users where email = $1`, sam.Email)
	office.Click(`a[href$="id=` + sam.ID + `"]`)
	office.Click(`form[action="/settings/members/remove"] button`)
	office.ClickAndSee(`input[name=confirm] ~ button`, ".alert-good")
	if n := p.Database.Count(t, `select count(*) from account.memberships where user_id = $1`, sam.ID); n != 0 {
		t.Error("the person is still a member")
	}
	sound(t, "office", office, http.StatusBadRequest) // the form that came back
	sound(t, "phone", phone, http.StatusBadRequest)   // a short password
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
}
