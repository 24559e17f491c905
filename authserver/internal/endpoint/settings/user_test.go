package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

const namePath = "/settings/user/name"

func TestUser_ChangesName(t *testing.T) {
	site := shared(t)
	ada := site.Stranger()
	browser := site.SignedIn(ada)
	form := browser.Get("/settings/user").Form(namePath)
	form.Set("name", "  Ada King ")
	browser.Post(namePath, form).Follow().Says("Your name was saved.", "Ada King")
	browser.Post(namePath, form) // changes nothing
	site.CountIs(1, "select count(*) from account.audit_events where "+`action = $2 and user_id = $1
		and detail::text not like '%King%'`, ada.ID, audit.UserRenamed)
	for _, name := range []string{"", " ", "a\u202eb", strings.Repeat("x", 101), "a\nb"} {
		form.Set("name", name)
		page := browser.Post(namePath, form)
		page.As(name).Wants(http.StatusBadRequest, "The name was not saved.")
		if kept := page.Form(namePath).Get("name"); kept != name && name != "a\nb" {
			t.Errorf("%q: the form keeps %q", name, kept)
		}
	}
	browser.Post(namePath, url.Values{"name": {"Eve"}}).Wants(http.StatusForbidden)
	site.CountIs(1, `select count(*) from account.users where id = $1 and name = 'Ada King'`, ada.ID)
}
