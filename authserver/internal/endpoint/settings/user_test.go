package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

const namePath = "/settings/user/name"

func TestUser_ChangesName(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Stranger()
	browser := site.SignedIn(ada)
	form := browser.Get("/settings/user").Form(namePath)
	form.Set("name", "  Ada King ")
	if page := browser.Post(namePath, form).Follow(); !page.HasText("Your name was saved.") ||
		!page.HasText("Ada King") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	browser.Post(namePath, form) // changes nothing
	if n := site.Count(`select count(*) from account.audit_events where action = $2 and user_id = $1
		and detail::text not like '%King%'`, ada.ID, audit.UserRenamed); n != 1 {
		t.Errorf("%d events", n)
	}
	for _, name := range []string{"", " ", "a\u202eb", strings.Repeat("x", 101), "a\nb"} {
		form.Set("name", name)
		page := browser.Post(namePath, form)
		if page.Status != http.StatusBadRequest || !page.HasText("The name was not saved.") {
			t.Errorf("%q: %d %s", name, page.Status, page.Text())
		}
		if kept := page.Form(namePath).Get("name"); kept != name && name != "a\nb" {
			t.Errorf("%q: the form keeps %q", name, kept)
		}
	}
	if page := browser.Post(namePath, url.Values{"name": {"Eve"}}); page.Status != http.StatusForbidden {
		t.Errorf("without the key of the page: %d", page.Status)
	}
	if site.Count(`select count(*) from account.users where id = $1 and name = 'Ada King'`, ada.ID) != 1 {
		t.Error("the name was changed")
	}
}
