package settings_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const deletePath = "/settings/user/delete"

func TestDeletion_EndsAccountAndSignsOut(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	memberManager(site)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	browser, other := site.SignedIn(ada), site.SignedIn(ada)
	page := browser.Get(deletePath)
	page.Wants(http.StatusOK, "You leave the workspace Riverside Food Bank.", "1 personal access token",
		"Entries in audit logs", ada.Email)
	form := page.Form(deletePath)
	form.Del("confirm")
	browser.Post(deletePath, form).Wants(http.StatusBadRequest, "Tick this box")
	form.Set("confirm", "yes")
	form.Del("key")
	browser.Post(deletePath, form).Wants(http.StatusForbidden)
	site.CountIs(1, `select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID)
	done := page.Send(deletePath, browsertest.Fields{"confirm": "yes"})
	done.Follow().Wants(http.StatusOK, "Your account was deleted.")
	done.LeadsTo("/login?account-deleted=1")
	for _, b := range []*browsertest.Browser{browser, other} {
		b.Get("/settings/user").Wants(http.StatusSeeOther)
	}
	again := site.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": ada.Email, "password": browsertest.Password})
	unknown := site.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": "x" + ada.Email, "password": browsertest.Password})
	if again.Status != http.StatusBadRequest || unknown.Status != again.Status {
		t.Errorf("sign-in: %d, %d", again.Status, unknown.Status)
	}
	events(site, 1, ada, audit.UserDeleted)
}

func TestDeletion_NeedsAnotherManager(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	browser := site.SignedIn(ada)
	browser.Get(deletePath).Wants(http.StatusOK, "You cannot delete it yet", "Riverside Food Bank", "Manage members")
	form := browser.Get("/settings/user").Form(namePath)
	form.Set("confirm", "yes")
	browser.Post(deletePath, form).Wants(http.StatusConflict, "Nothing was deleted.", "You cannot delete it yet")
	site.CountIs(1, `select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID)
}
