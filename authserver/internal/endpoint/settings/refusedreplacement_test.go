package settings_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

// opened returns, for each open row of the page, the ids of the elements in it.
func opened(page *browsertest.Page) []map[string]bool {
	var out []map[string]bool
	for _, details := range page.Elements("details") {
		for _, a := range details.Attr {
			if a.Key != "open" || browsertest.Attribute(details, "class") != "confirm" {
				continue
			}
			ids := map[string]bool{}
			for n := range details.Descendants() {
				ids[browsertest.Attribute(n, "id")] = true
			}
			out = append(out, ids)
		}
	}
	return out
}

// A leaked secret must not stay valid for a day because the password was mistyped first.
func TestReplaceSecret_WrongPasswordKeepsInput(t *testing.T) {
	site := browsertest.Start(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Wait(session.Freshness + time.Second)
	for _, path := range []string{apps + "/secret", tokens + "/replace"} {
		for password, words := range map[string]string{
			"wrong": "The password is incorrect.",
			"":      "Enter your password to continue.",
		} {
			form := browser.Get(developers).Form(path)
			form.Set("password", password)
			form.Set("expire_old", "yes")
			page := browser.Post(path, form)
			field := "password-" + form.Get("id")
			boxes := opened(page)
			if page.Status != http.StatusBadRequest || len(boxes) != 1 || !boxes[0][field] ||
				!boxes[0]["password-note-"+form.Get("id")] {
				t.Fatalf("%s, %q: %d, %d boxes are open: %s", path, password, page.Status, len(boxes), page.Text())
			}
			if !page.HasText("Nothing was created. "+words) || !page.HasText("Go to the field") ||
				!strings.Contains(page.Body, `href="#`+field+`"`) {
				t.Errorf("%s, %q: no link to the field: %s", path, password, page.Text())
			}
			back := page.Form(path)
			if path == apps+"/secret" && (back.Get("id") != form.Get("id") || back.Get("expire_old") != "yes") {
				t.Errorf("the checkbox came back unchecked: %v", back)
			}
		}
	}
	form := browser.Get(developers).Form(apps + "/secret")
	if form.Has("expire_old") || len(opened(browser.Get(developers))) != 0 {
		t.Error("a refused form is open on a new page")
	}
	form.Set("expire_old", "yes")
	form.Set("password", "wrong")
	retry := browser.Post(apps+"/secret", form).Form(apps + "/secret")
	retry.Set("password", browsertest.Password)
	if page := browser.Post(apps+"/secret", retry); page.Status != http.StatusOK ||
		!page.HasText("The old secret no longer works.") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	if n := site.Count(`select count(*) from account.client_secrets where client_id = $1`, form.Get("id")); n != 1 {
		t.Errorf("%d secrets are stored", n)
	}
}

// A user without a password is sent to reauthentication from the same open row.
func TestReplaceSecret_MissingPasswordKeepsInput(t *testing.T) {
	site := browsertest.Start(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	site.Wait(session.Freshness + time.Second)
	form := browser.Get(developers).Form(apps + "/secret")
	form.Set("expire_old", "yes")
	page := browser.Post(apps+"/secret", form)
	if boxes := opened(page); len(boxes) != 1 || !boxes[0]["password-"+form.Get("id")] ||
		page.Form(apps+"/secret").Get("expire_old") != "yes" {
		t.Errorf("%d boxes are open: %s", len(boxes), page.Text())
	}
}
