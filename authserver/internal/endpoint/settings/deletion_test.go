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
	t.Parallel()
	site := browsertest.Own(t)
	ada := memberManager(site)
	memberManager(site)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	browser, other := site.SignedIn(ada), site.SignedIn(ada)
	page := browser.Get(deletePath)
	wantsWords(t, page, http.StatusOK, "You leave the workspace Riverside Food Bank.", "1 personal access token",
		"Entries in audit logs", ada.Email)
	form := page.Form(deletePath)
	form.Del("confirm")
	wantsWords(t, browser.Post(deletePath, form), http.StatusBadRequest, "Tick this box")
	form.Set("confirm", "yes")
	form.Del("key")
	if refused := browser.Post(deletePath, form); refused.Status != http.StatusForbidden {
		t.Errorf("without the key of the page: %d", refused.Status)
	}
	if site.Count(`select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID) != 1 {
		t.Fatal("deleted without confirmation")
	}
	done := page.Send(deletePath, browsertest.Fields{"confirm": "yes"})
	wantsWords(t, done.Follow(), http.StatusOK, "Your account was deleted.")
	if done.Location() != "/login?account-deleted=1" {
		t.Errorf("%d to %s", done.Status, done.Location())
	}
	for _, b := range []*browsertest.Browser{browser, other} {
		if to := b.Get("/settings/user"); to.Status != http.StatusSeeOther {
			t.Errorf("still signed in: %d", to.Status)
		}
	}
	again := site.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": ada.Email, "password": browsertest.Password})
	unknown := site.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": "x" + ada.Email, "password": browsertest.Password})
	if again.Status != http.StatusBadRequest || unknown.Status != again.Status {
		t.Errorf("sign-in: %d, %d", again.Status, unknown.Status)
	}
	if site.Count(`select count(*) from account.audit_events where action = $2 and user_id = $1`, ada.ID,
		audit.UserDeleted) != 1 {
		t.Error("no event")
	}
}

func TestDeletion_NeedsAnotherManager(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := memberManager(site)
	browser := site.SignedIn(ada)
	page := browser.Get(deletePath)
	wantsWords(t, page, http.StatusOK, "You cannot delete it yet", "Riverside Food Bank", "Manage members")
	form := browser.Get("/settings/user").Form(namePath)
	form.Set("confirm", "yes")
	wantsWords(t, browser.Post(deletePath, form), http.StatusConflict, "Nothing was deleted.",
		"You cannot delete it yet")
	if site.Count(`select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID) != 1 {
		t.Error("the account was deleted")
	}
}
