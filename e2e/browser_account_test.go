package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// A person changes the address of their account with the links in two mails, signs in with it, and deletes the account,
// on a phone without JavaScript.
func TestBrowser_ChangesAddressAndDeletesAccount(t *testing.T) {
	t.Parallel()
	p, box := enterWithMail(t)
	ws := p.NewWorkspace(t)
	user := ws.Member(t, harness.ReadProgrammes)
	now := demo.User{ID: user.ID, Email: "new." + user.Email, Password: user.Password}
	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	phone.Open(p.AppURL + "/settings/user/email")
	phone.SignIn(user.Email, user.Password)
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
	laptop.Open(p.AppURL + "/settings/user")
	laptop.SignIn(now.Email, now.Password)
	phone.Open(p.AppURL + "/settings/user")
	phone.Click(`a[href="/settings/user/delete"]`)
	phone.See("#confirm")
	wantsText(t, "the page", phone, ws.Workspace.Name)
	phone.Click(`form[action="/settings/user/delete"] button`)
	phone.See("#confirm-note")
	phone.Click("#confirm")
	phone.Click(`form[action="/settings/user/delete"] button`)
	phone.See(`form[action="/login"]`)
	wantsText(t, "after the deletion", phone, "Your account was deleted")
	mailTo(t, box, now.Email, "Your account was deleted")
	laptop.Open(p.AppURL + "/settings/user")
	laptop.See(`form[action="/login"]`)
	if n := p.Database.Count(t, `select count(*) from account.users where email in ($1, $2)`, user.Email,
		now.Email); n != 0 {
		t.Error("the address is still there")
	}
}
