package app_test

import (
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

const (
	linkPage  = "/settings/provider"
	unlink    = linkPage + "/unlink"
	notLinked = "You cannot sign in with a Riverside account yet."
)

func TestUnlink_EndsLinkAfterRecentAuthentication(t *testing.T) {
	s := shared(t)
	p, ada, bob := s.provider(), s.person(), s.person()
	page := s.signedIn(bob).Get(linkPage)
	s.wants("user without a link", page, 200, notLinked)
	s.lacks("user without a link", page, "Unlink")
	b, bobs := p.linked(s, ada), p.linked(s, bob)
	form := b.Get(linkPage).Form(unlink)
	s.wants("another user", bobs.Post(unlink, form), 403)
	s.wants("another session of hers", s.signedIn(ada).Post(unlink, form), 403)
	s.wants("signed out", s.browser().Post(unlink, form), 303, "/login?")
	b.Headers.Set("Sec-Fetch-Site", "cross-site")
	s.wants("another site", b.Post(unlink, form), 403)
	b.Headers.Del("Sec-Fetch-Site")
	s.stale()
	s.wants("without a fresh proof", b.Post(unlink, form), 303, "/login/again?return="+url.QueryEscape(linkPage))
	s.wants("its page", b.Get(linkPage), 200, "confirm your identity first")
	s.rows(2, "identities", "user_id in ($1, $2)", ada.ID, bob.ID)
	b.Get("/login/again?return="+linkPage).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	s.wants("with a fresh proof", b.Post(unlink, form).Follow(), 200, "account was unlinked", notLinked)
	s.rows(0, "identities", "user_id = $1", ada.ID)
	s.rows(1, "identities", "user_id = $1", bob.ID)
	s.recorded(1, audit.IdentityUnlinked, ada.ID)
	s.wants("the events", b.Get("/settings/security"), 200, "Unlinked the account at the identity provider")
	s.wants("twice", b.Post(unlink, form).Follow(), 200, "No Riverside account was linked")
	s.recorded(1, audit.IdentityUnlinked, ada.ID)
}

// A thief with the password of a user who has a passkey cannot unlink the account.
func TestUnlink_PasswordAloneIsNotEnoughForUserWithPasskey(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	p.linked(s, ada)
	thief := s.signedIn(ada)
	form := thief.Get(linkPage).Form(unlink)
	s.fill(ada)
	s.fixture.Exec(`delete from account.authenticators where user_id = $1`, ada.ID)
	s.wants("the page", thief.Get(linkPage), 200, "confirm your identity first")
	refused := thief.Post(unlink, form)
	s.wants("the form", refused, 303, "/login/again?return="+url.QueryEscape(linkPage))
	s.rows(1, "identities", "subject = $1", ada.ID.String())
	page := refused.Follow()
	s.wants("the page that follows", page, 200, "Use your passkey to continue.", "request a link")
	s.lacks("the page that follows", page, "Continue with Riverside")
}

func TestUnlink_LastSignInMethodIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("passkeys offered", func(t *testing.T) {
		s := shared(t)
		s.unlinksBesides(s.provider(), 303)
	})
	t.Run("none offered", func(t *testing.T) {
		p := newProvider(t)
		own(t, p.of, plain).unlinksBesides(p, 409)
	})
}

// unlinksBesides unlinks an account without another way to sign in, and with a passkey, which has a status.
func (s *site) unlinksBesides(p *provider, passkey int) {
	ada := s.person()
	b := p.linked(s, ada)
	s.removePassword(ada)
	unlinks := func() *browsertest.Page { return b.Get(linkPage).Send(unlink, nil) }
	s.wants("nothing else", unlinks(), 409, "You need Riverside to sign in")
	s.insertPasskeys(1, ada)
	s.fixture.Exec(`update account.passkeys set copied_at = now() where user_id = $1`, ada.ID)
	s.wants("a passkey that was stopped", unlinks(), 409, "You need Riverside to sign in")
	s.rows(1, "identities", "user_id = $1", ada.ID)
	s.fixture.Exec(`update account.passkeys set copied_at = null where user_id = $1`, ada.ID)
	s.wants("a good passkey", unlinks(), passkey)
	s.rows(map[int]int{409: 1, 303: 0}[passkey], "identities", "user_id = $1", ada.ID)
}
