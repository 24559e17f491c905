package e2e

import (
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A password can be shown while it is typed, and is sent hidden again.
func TestBrowser_ShowsTypedPassword(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Telephone)
	browser.Open(p.AppURL + "/login")
	browser.Fill("#email", ws.Owner.Email)
	browser.Fill("#password", ws.Owner.Password)
	for _, want := range []string{"text", "password", "text"} {
		browser.Click("#password + .reveal")
		if got := harness.Evaluate[string](browser, `document.getElementById("password").type`); got != want {
			t.Errorf("the field is of the type %s, want %s", got, want)
		}
	}
	sent := harness.Evaluate[string](browser,
		`(document.querySelector("form.form").requestSubmit(), document.getElementById("password").type)`)
	if sent != "password" {
		t.Errorf("the password is sent in a field of the type %s", sent)
	}
	browser.See("#workspaces")
}
