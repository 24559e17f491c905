package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A user sets an authenticator app up, and then signs in on a phone without JavaScript with a code and with a recovery
// code.
func TestBrowser_SignsInWithAuthenticatorApp(t *testing.T) {
	p, ws := inWorkspace(t)
	office := newBrowser(t, p, harness.Laptop)
	office.Open(p.AppURL + "/settings/security/authenticator")
	office.SignIn(ws.Owner.Email, ws.Owner.Password)
	office.See("#setup-key")
	if width := harness.Evaluate[int](office, `document.querySelector("img.qr").naturalWidth`); width != 200 {
		t.Errorf("the QR code is %d pixels wide", width)
	}
	key := strings.ReplaceAll(harness.Evaluate[string](office, `document.getElementById("setup-key").value`), " ", "")
	met.Add("authenticator key", key)
	now := time.Now()
	codeAt := func(at time.Time) string {
		code, err := totp.GenerateCode(key, at)
		must(t, err)
		return code
	}
	office.Fill("#code", codeAt(now))
	office.Click(`form[action="/settings/security/authenticator"] button.button-main`)
	office.See(".codes")
	recovery := strings.Fields(harness.Evaluate[string](office, `document.querySelector(".codes").value`))
	if len(recovery) != 10 {
		t.Fatalf("%d recovery codes", len(recovery))
	}
	for _, code := range recovery {
		met.Add("recovery code", code)
	}

	phone := newBrowser(t, p, harness.Telephone)
	phone.WithoutScript()
	for _, code := range []string{codeAt(now.Add(30 * time.Second)), recovery[0]} {
		phone.Open(p.AppURL + "/settings/apps")
		phone.Fill("#email", ws.Owner.Email)
		phone.Fill("#password", ws.Owner.Password)
		phone.Press(EnterKey)
		phone.See("#code")
		phone.Fill("#code", code)
		phone.Press(EnterKey)
		phone.See(`nav [aria-current="page"]`)
		phone.Click(`form[action="/logout"] button`)
		phone.See("#email")
	}
	for name, browser := range map[string]Browser{"office": office, "phone": phone} {
		for _, complaint := range browser.Complaints() {
			t.Errorf("%s: error on the console: %s", name, complaint)
		}
		if hosts := browser.Hosts(); len(hosts) != 1 {
			t.Errorf("%s: requests were sent to %v", name, hosts)
		}
	}
}
