package app_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

const (
	linkPage = "/settings/provider"
	unlink   = linkPage + "/unlink"
)

// linked signs who in at the provider, now, and returns the browser.
func (p *provider) linked(s *site, who browsertest.Person) *browsertest.Browser {
	p.t.Helper()
	p.vouching(map[string]any{"email": who.Email, "sub": who.ID.String(), "auth_time": time.Now().Unix()})
	b := s.browser()
	if page := p.through(s, b); page.Status != http.StatusSeeOther {
		p.t.Fatalf("%d %s", page.Status, page.Text())
	}
	return b
}

const notLinked = "You cannot sign in with a Riverside account yet."

func TestUnlink_EndsLinkAfterRecentAuthentication(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada, bob := s.person(), s.person()
	if page := s.signedIn(bob).Get(linkPage); page.Status != http.StatusOK || !page.HasText(notLinked) ||
		page.HasText("Unlink") {
		t.Errorf("user without a link: %s", page.Text())
	}
	b, bobs := p.linked(s, ada), p.linked(s, bob)
	form := b.Get(linkPage).Form(unlink)
	for name, other := range map[string]*browsertest.Browser{
		"another user":            bobs,
		"another session of hers": s.signedIn(ada),
	} {
		if page := other.Post(unlink, form); page.Status != http.StatusForbidden {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	if page := s.browser().Post(unlink, form); !strings.HasPrefix(page.Location(), "/login?") {
		t.Errorf("signed out: %d", page.Status)
	}
	foreign := b.Headers.Clone()
	b.Headers.Set("Sec-Fetch-Site", "cross-site")
	if page := b.Post(unlink, form); page.Status != http.StatusForbidden {
		t.Errorf("another site: %d", page.Status)
	}
	b.Headers = foreign
	s.stale()
	if page := b.Post(unlink, form); page.Location() != "/login/again?return="+url.QueryEscape(linkPage) {
		t.Errorf("without a fresh proof: %d %q", page.Status, page.Location())
	}
	if page := b.Get(linkPage); !page.HasText("confirm your identity first") {
		t.Errorf("without a fresh proof the page says: %s", page.Text())
	}
	if n := s.count(`select count(*) from account.identities`); n != 2 {
		t.Fatalf("%d links", n)
	}
	b.Get("/login/again?return="+linkPage).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	if page := b.Post(unlink, form).Follow(); !page.HasText("account was unlinked") || !page.HasText(notLinked) {
		t.Errorf("%s", page.Text())
	}
	if s.count(`select count(*) from account.identities where user_id = $1`, ada.ID) != 0 ||
		s.count(`select count(*) from account.identities`) != 1 {
		t.Error("want only the user's own link removed")
	}
	if s.events(ada.ID, audit.IdentityUnlinked) != 1 ||
		!b.Get("/settings/security").HasText("Unlinked the account at the identity provider") {
		t.Error("the event was not recorded")
	}
	if page := b.Post(unlink, form).Follow(); !page.HasText("No Riverside account was linked") ||
		s.events(ada.ID, audit.IdentityUnlinked) != 1 {
		t.Errorf("twice: %s", page.Text())
	}
}

// A thief with the password of a user who has a passkey cannot unlink the account.
func TestUnlink_PasswordAloneIsNotEnoughForUserWithPasskey(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) {
		p.of(c)
		c.Passkeys = true
	})
	ada := s.person()
	p.linked(s, ada)
	thief := s.signedIn(ada)
	form := thief.Get(linkPage).Form(unlink)
	s.fill(ada)
	s.fixture.Exec(`delete from account.authenticators`)
	if page := thief.Get(linkPage); !page.HasText("confirm your identity first") {
		t.Errorf("the page says: %s", page.Text())
	}
	refused := thief.Post(unlink, form)
	if refused.Location() != "/login/again?return="+url.QueryEscape(linkPage) ||
		s.count(`select count(*) from account.identities where subject = $1`, ada.ID.String()) != 1 {
		t.Errorf("%d %q", refused.Status, refused.Location())
	}
	page := refused.Follow()
	if !page.HasText("Use your passkey to continue.") || page.HasText("Continue with Riverside") ||
		!page.HasText("request a link") {
		t.Errorf("the page that follows: %s", page.Text())
	}
}

func TestUnlink_LastSignInMethodIsRefused(t *testing.T) {
	t.Parallel()
	for name, passkeys := range map[string]bool{"passkeys offered": true, "none offered": false} {
		p := newProvider(t)
		s := serve(t, func(c *app.Config) {
			p.of(c)
			c.Passkeys = passkeys
		})
		ada := s.person()
		b := p.linked(s, ada)
		s.fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
		refused := func(when string) {
			t.Helper()
			page := b.Get(linkPage).Send(unlink, nil)
			if page.Status != http.StatusConflict || !page.HasText("You need Riverside to sign in") ||
				s.count(`select count(*) from account.identities`) != 1 {
				t.Errorf("%s, %s: %d %s", name, when, page.Status, page.Text())
			}
		}
		refused("nothing else")
		s.fixture.Exec(
			`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
			transports, backup_eligible, backed_up, copied_at)
			values (gen_random_uuid(), $1, 'Laptop', 'x', 'x', 0, 'x', '{}', false, false, now())`,
			ada.ID,
		)
		refused("a passkey that was stopped")
		s.fixture.Exec(`update account.passkeys set copied_at = null`)
		if !passkeys {
			refused("a passkey that cannot be used here")
			continue
		}
		if page := b.Get(linkPage).Send(unlink, nil); page.Status != http.StatusSeeOther ||
			s.count(`select count(*) from account.identities`) != 0 {
			t.Errorf("%s, a good passkey: %d", name, page.Status)
		}
	}
}
