package app_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const newAccount = "/invitation/passkey"

// invited returns the path of the page of an invitation for an address.
func (s *site) invited(email string) string {
	s.t.Helper()
	boss := s.person()
	s.fixture.Join(s.fixture.WorkspaceID, boss.ID,
		perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	b := s.signedIn(boss)
	sent := b.Get("/settings/members/invite").Send("/settings/members/invite",
		browsertest.Fields{"email": email, "permissions": string(perm.ProgrammesRead)})
	for _, field := range sent.Elements("input") {
		if browsertest.Attribute(field, "id") == "invitation-link" {
			return strings.TrimPrefix(browsertest.Attribute(field, "value"), s.url)
		}
	}
	s.t.Fatalf("no link: %d %s", sent.Status, sent.Text())
	return ""
}

func tokenOf(path string) string {
	_, token, _ := strings.Cut(path, "token=")
	return token
}

// challenged returns the device's response to the challenge of an invitation.
func (d *device) challenged(b *browsertest.Browser, path string) string {
	d.t.Helper()
	asked := b.Post(newAccount+"/options", url.Values{"token": {tokenOf(path)}, "name": {"Sam Reed"}})
	if asked.Status != http.StatusOK || asked.Header.Get("Cache-Control") != "no-store" {
		d.t.Fatalf("%d %v %s", asked.Status, asked.Header, asked.Body)
	}
	return d.made(asked.Body)
}

func joins(b *browsertest.Browser, path, name, answer string) *browsertest.Page {
	return b.Post(newAccount, url.Values{"token": {tokenOf(path)}, "name": {name}, "credential": {answer}})
}

func TestInvitation_PasskeyInsteadOfPassword(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	path, d, b := s.invited("sam@example.org"), newDevice(s), s.browser()
	if page := b.Get(path); !page.HasText("Use a passkey instead of a password") {
		t.Errorf("the page does not offer it: %s", page.Text())
	}
	for name, c := range map[string]struct {
		token, name string
		status      int
	}{
		"no name":       {tokenOf(path), " ", http.StatusBadRequest},
		"unknown token": {"alm_inv_x", "Sam", http.StatusNotFound},
		"no token":      {"", "Sam", http.StatusNotFound},
	} {
		page := b.Post(newAccount+"/options", url.Values{"token": {c.token}, "name": {c.name}})
		if page.Status != c.status || !strings.Contains(page.Body, "message") {
			t.Errorf("%s: %d %s", name, page.Status, page.Body)
		}
	}
	answer := d.challenged(b, path)
	refused := joins(b, path, "", answer)
	if refused.Status != http.StatusBadRequest || !refused.HasText("Enter a name.") {
		t.Errorf("no name: %d %s", refused.Status, refused.Text())
	}
	joined := joins(b, path, "Sam Reed", answer)
	if joined.Status != http.StatusSeeOther ||
		!joined.Follow().HasText("You are now a member of Riverside Food Bank.") {
		t.Fatalf("%d %s", joined.Status, joined.Text())
	}
	if n := s.count(`select count(*) from account.users u join account.passkeys p on p.user_id = u.id
		join account.memberships m on m.user_id = u.id
		where u.email = 'sam@example.org' and u.name = 'Sam Reed' and u.password_hash is null`); n != 1 {
		t.Error("there is no such account")
	}
	other := s.browser()
	if page := d.signIn(other); page.Status != http.StatusSeeOther || !inside(other) {
		t.Errorf("the passkey does not sign in: %d", page.Status)
	}
	removal := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil)
	if removal.Status != http.StatusConflict {
		t.Errorf("the only way to sign in was removed: %d", removal.Status)
	}
	for _, password := range []string{"", browsertest.Password} {
		guess := s.browser().Post("/login", url.Values{"email": {"sam@example.org"}, "password": {password}})
		if guess.Status != http.StatusBadRequest {
			t.Errorf("password %q: %d", password, guess.Status)
		}
	}
	if page := joins(s.browser(), path, "Sam Reed", answer); page.Status != http.StatusNotFound {
		t.Errorf("the link again: %d", page.Status)
	}
}

// A response is valid once, for the invitation, browser and time of its challenge.
func TestInvitation_RefusesPasskeyForOtherChallenge(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	path, other := s.invited("sam@example.org"), s.invited("eve@example.org")
	victim, thief := s.browser(), s.browser()
	thief.Get(path)
	foreign := newDevice(s)
	foreign.party.Origin = "https://evil.example"
	known := s.added(s.person())
	for name, page := range map[string]*browsertest.Page{
		"no response":        joins(victim, path, "Sam", "{}"),
		"another invitation": joins(thief, path, "Sam", newDevice(s).challenged(thief, other)),
		"another browser":    joins(thief, path, "Sam", newDevice(s).challenged(victim, path)),
		"another site":       joins(victim, path, "Sam", foreign.challenged(victim, path)),
		"a known passkey":    joins(victim, path, "Sam", known.challenged(victim, path)),
	} {
		if page.Status != http.StatusBadRequest || !page.HasText("The passkey was not accepted") ||
			page.Form(newAccount).Get("name") != "Sam" {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	victim.Headers.Set("Sec-Fetch-Site", "cross-site")
	if page := joins(victim, path, "Sam", "{}"); page.Status != http.StatusForbidden {
		t.Errorf("another site's form: %d", page.Status)
	}
	victim.Headers = http.Header{}
	if n := s.count(`select count(*) from account.users
		where email in ('sam@example.org', 'eve@example.org')`); n != 0 {
		t.Fatalf("%d accounts", n)
	}
	ada := s.person()
	taken := s.invited(ada.Email)
	asked := victim.Post(newAccount+"/options", url.Values{"token": {tokenOf(taken)}, "name": {"Eve"}})
	forced := joins(victim, taken, "Eve", newDevice(s).challenged(victim, taken))
	if asked.Status != http.StatusOK || forced.Status != http.StatusConflict || // the inviter has the link
		!forced.HasText("sign in to answer") {
		t.Errorf("an address with an account: %d, %d", asked.Status, forced.Status)
	}
}

// Concurrent answers to one invitation, with a passkey and with a password, create one account.
func TestInvitation_ConcurrentAnswersCreateOneAccount(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	for range 4 {
		s.fixture.Exec(`delete from account.invitation_messages`)
		path, b, d := s.invited("sam@example.org"), s.browser(), newDevice(s)
		answer := d.challenged(b, path)
		pages := make(chan *browsertest.Page, 2)
		go func() { pages <- joins(b, path, "Sam", answer) }()
		go func() {
			pages <- s.browser().Post("/invitation/account",
				url.Values{"token": {tokenOf(path)}, "name": {"Sam"}, "password": {newPassword}})
		}()
		joined := 0
		for range 2 {
			if page := <-pages; page.Status == http.StatusSeeOther {
				joined++
			}
		}
		n := s.count(`select count(*) from account.users where email = 'sam@example.org'
			and (password_hash is not null) <> exists (select from account.passkeys where user_id = users.id)`)
		if n != 1 || joined != 1 {
			t.Fatalf("%d accounts with one way to sign in, %d answers", n, joined)
		}
		s.fixture.Exec(`update account.users set email = gen_random_uuid() || '@example.org'
			where email = 'sam@example.org'`)
	}
}

const removal = "/settings/security/password/remove"

func TestPassword_LastSignInMethodIsNotRemoved(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	b := s.signedIn(ada)
	page := b.Get("/settings/security/password")
	if strings.Contains(page.Body, removal) {
		t.Errorf("the page offers to remove the only way to sign in: %s", page.Text())
	}
	kept := b.Post(removal, page.Form("/settings/security/password"))
	if kept.Status != http.StatusConflict || !kept.HasText("You need your password to sign in.") {
		t.Fatalf("the only way to sign in: %d %s", kept.Status, kept.Text())
	}
	d := newDevice(s)
	d.addTo(b, "Laptop")
	s.fixture.Exec(`update account.passkeys set copied_at = now()`)
	page = b.Get("/settings/security/password")
	if refused := b.Post(removal, page.Form("/settings/security/password")); refused.Status != http.StatusConflict {
		t.Errorf("with a blocked passkey: %d", refused.Status)
	}
	s.fixture.Exec(`update account.passkeys set copied_at = null`)
	form := b.Get("/settings/security/password").Form(removal)
	s.stale()
	if page := b.Post(removal, form); !page.Follow().HasText("Confirm your identity first.") {
		t.Errorf("long after the sign-in: %d", page.Status)
	}
	b = s.signedIn(ada)
	s.usedSecondFactor(ada)
	if page := s.signedIn(s.person()).Post(removal, form); page.Status != http.StatusForbidden {
		t.Errorf("another user's form: %d", page.Status)
	}
	removed := b.Get("/settings/security/password").Send(removal, nil)
	if !removed.Follow().HasText("Your password was removed.") || s.events(ada.ID, audit.UserPasswordRemoved) != 1 {
		t.Errorf("%d %s", removed.Status, removed.Text())
	}
	old := s.browser().Post("/login", url.Values{"email": {ada.Email}, "password": {browsertest.Password}})
	if old.Status != http.StatusBadRequest {
		t.Errorf("the removed password: %d", old.Status)
	}
	if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Errorf("the passkey: %d", page.Status)
	}
	if page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil); page.Status != http.StatusConflict {
		t.Errorf("the passkey is the only way to sign in now, and was removed: %d", page.Status)
	}
}

// A user who removes the password and the passkey at the same time keeps one of them.
func TestPassword_ConcurrentRemovalsKeepOneSignInMethod(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	for range 4 {
		ada := s.person()
		b := s.signedIn(ada)
		newDevice(s).addTo(b, "Laptop")
		forms := map[string]url.Values{
			removal:                     b.Get("/settings/security/password").Form(removal),
			"/settings/passkeys/remove": b.Get("/settings/passkeys").Form("/settings/passkeys/remove"),
		}
		done := make(chan *browsertest.Page, 2)
		for path, form := range forms {
			go func() { done <- b.Post(path, form) }()
		}
		<-done
		<-done
		if n := s.count(`select count(*) from account.users u where u.id = $1 and (u.password_hash is not null
			or exists (select from account.passkeys p where p.user_id = u.id))`, ada.ID); n != 1 {
			t.Fatal("no way to sign in is left")
		}
	}
}

const offerWords = "Add a passkey:"

func TestPasskeyOffer_OnceForEachBrowserAndUser(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	b := s.browser()
	b.Headers.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36")
	b.SignIn(ada)
	for _, path := range []string{"/settings/user", "/settings/security"} {
		if page := b.Get(path); !page.HasText("Add a passkey: Chrome on Linux") {
			t.Errorf("%s does not offer it: %s", path, page.Text())
		}
	}
	// A page that shows a credential only once must not be left by declining, so only two pages have the offer.
	for _, path := range []string{"/settings/apps", "/settings/passkeys", "/settings/security/authenticator"} {
		if page := b.Get(path); page.HasText(offerWords) {
			t.Errorf("%s offers it", path)
		}
	}
	declined := b.Get("/settings/security").Send("/settings/passkey-offer", nil)
	if declined.Location() != "/settings/security" || declined.Follow().HasText(offerWords) {
		t.Errorf("“Not now” leads to %q, or the offer stays", declined.Location())
	}
	b.Post("/logout", nil)
	b.SignIn(ada)
	if page := b.Get("/settings/user"); page.HasText(offerWords) {
		t.Error("offered again at the next sign-in")
	}
	b.Post("/logout", nil)
	b.SignIn(bob)
	if page := b.Get("/settings/user"); !page.HasText(offerWords) {
		t.Error("not offered to another user")
	}
	elsewhere := s.signedIn(ada)
	if page := elsewhere.Get("/settings/user"); !page.HasText(offerWords) {
		t.Error("not offered at another browser")
	}
	d := newDevice(s)
	d.addTo(elsewhere, "Laptop")
	if page := elsewhere.Get("/settings/user"); page.HasText(offerWords) {
		t.Error("offered to a user who has a passkey")
	}
	third := s.browser()
	d.signIn(third)
	if page := third.Get("/settings/user"); page.HasText(offerWords) {
		t.Error("offered after a sign-in with a passkey")
	}
	without := serve(t, func(c *app.Config) { c.Passkeys = false })
	if page := without.signedIn(without.person()).Get("/settings/user"); page.HasText(offerWords) {
		t.Error("offered by a deployment without passkeys")
	}
}

// A member of a workspace that requires a second factor adds a passkey and returns to the page. After that, a sign-in
// with the password alone can neither use the workspace nor change the passkeys until the passkey is used.
func TestSecondFactor_PasskeyReturnsToPageAndIsNotReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	s.fixture.Join(s.fixture.WorkspaceID, ada.ID, perm.AccountReadMembers)
	s.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, s.fixture.WorkspaceID)
	const members = "/settings/members"
	b := s.signedIn(ada)
	if page := b.Get(members); page.Status != http.StatusForbidden || !page.HasText("Add a passkey") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	page := b.Get("/settings/passkeys?return=" + url.QueryEscape(members))
	if back := page.Form("/settings/passkeys").Get("return"); back != members {
		t.Errorf("the form returns to %q", back)
	}
	d := newDevice(s)
	answer := d.made(options(t, b, "/settings/passkeys/options"))
	added := page.Send("/settings/passkeys", browsertest.Fields{"name": "Laptop", "credential": answer})
	if added.Location() != members || added.Follow().Status != http.StatusOK {
		t.Fatalf("added: %d to %q", added.Status, added.Location())
	}
	thief := s.signedIn(ada)
	if page := thief.Get(members); page.Status != http.StatusForbidden || !page.HasText("your password alone") {
		t.Errorf("the password alone: %d %s", page.Status, page.Text())
	}
	list := thief.Get("/settings/passkeys")
	if !list.HasText("confirm your identity first") {
		t.Errorf("the password alone may change passkeys: %s", list.Text())
	}
	forced := thief.Post("/settings/passkeys/options", nil)
	if forced.Status != http.StatusForbidden || !strings.Contains(forced.Body, "/login/again") {
		t.Errorf("a challenge: %d %s", forced.Status, forced.Body)
	}
	own := s.signedIn(ada)
	again := d.signed(options(t, own, "/login/again/passkey/options"))
	confirmed := own.Post("/login/again/passkey", url.Values{"credential": {again}, "return": {members}})
	if confirmed.Location() != members || confirmed.Follow().Status != http.StatusOK {
		t.Errorf("confirmed with the passkey: %d to %q", confirmed.Status, confirmed.Location())
	}
	if page := own.Get("/settings/passkeys"); page.HasText("confirm your identity first") {
		t.Error("the passkey was used, and passkeys cannot be changed")
	}
}

func TestChromium_InvitationWithPasskey(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	path := s.invited("sam@example.org")
	c := openChromium(t, s)
	c.open(path)
	c.press("button", "Use a passkey instead of a password")
	c.sees("p", "Enter a name.")
	c.fill("name", "Sam Reed")
	c.picture("invitation-passkey")
	c.press("button", "Use a passkey instead of a password")
	c.sees("div", "You are now a member of Riverside Food Bank.")
	c.signOut()
	c.press("button", "Sign in with a passkey")
	c.sees("dd", "sam@example.org")
	c.noFaults()
}

func TestChromium_PasskeyOfferLeadsToPasskey(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	c := openChromium(t, s)
	c.signIn(s.person())
	c.open("/settings/user")
	c.sees("strong", "Add a passkey: Chrome on Linux")
	c.picture("passkey-offer")
	c.press("a", "Add a passkey")
	c.press("button", "Add passkey")
	c.sees("div", "The passkey Chrome on Linux was added.")
	c.open("/settings/security/password")
	c.press("summary", "Remove the password")
	c.press("button", "Remove my password")
	c.sees("div", "Your password was removed.")
	c.noFaults()
}
