package app_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

const deletePath = "/settings/user/delete"

// TestDeletion_NeedsFreshSignIn also checks that the user gets a mail about the deletion.
func TestDeletion_NeedsFreshSignIn(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	b := p.signedIn(who)
	form := b.Get(deletePath).Form(deletePath)
	form.Set("confirm", "yes")
	p.stale()
	if page := b.Get(deletePath); !page.HasText("confirm your identity first") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	if page := b.Post(deletePath, form); page.Status != 409 || !page.HasText("Nothing was deleted") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	again := b.Get("/login/again?return="+deletePath).Send("/login/again", browsertest.Fields{
		"password": browsertest.Password,
	})
	if again.Location() != deletePath {
		t.Fatalf("%d to %s", again.Status, again.Location())
	}
	done := again.Follow().Send(deletePath, browsertest.Fields{"confirm": "yes"})
	if done.Location() != "/login?account-deleted=1" {
		t.Errorf("%d %s", done.Status, done.Text())
	}
	p.mail(who.Email, "Your account was deleted", 1)
}
