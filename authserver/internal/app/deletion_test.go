package app_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// The user gets a mail about the deletion.
func TestDeletion_NeedsFreshSignIn(t *testing.T) {
	const path = "/settings/user/delete"
	s := mailing(t)
	who := s.person()
	b := s.signedIn(who)
	form := b.Get(path).Form(path)
	form.Set("confirm", "yes")
	s.stale()
	s.wants("the page", b.Get(path), 200, "confirm your identity first")
	s.wants("the form", b.Post(path, form), 409, "Nothing was deleted")
	again := b.Get("/login/again?return="+path).
		Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	s.needs("a fresh proof", again, 303, path)
	done := again.Follow().Send(path, browsertest.Fields{"confirm": "yes"})
	s.wants("the form after it", done, 303, "/login?account-deleted=1")
	s.mail(who.Email, "Your account was deleted", 1)
}
