package app_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	invitePage = "/settings/members/invite"
	newAccount = "/invitation/passkey"
)

// inviter creates a member who may invite others to see programmes.
func (s *site) inviter() browsertest.Person {
	s.t.Helper()
	return s.member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
}

// invites sends an invitation for an address, and returns the page.
func (s *site) invites(email string) *browsertest.Page {
	s.t.Helper()
	page := s.signedIn(s.inviter()).Get(invitePage)
	return page.Send(invitePage, browsertest.Fields{"email": email, "permissions": string(perm.ProgrammesRead)})
}

// invited returns the path of the page of an invitation for an address.
func (s *site) invited(email string) string {
	s.t.Helper()
	const link = "#invitation-link"
	return strings.TrimPrefix(s.invites(email).Selects(link).Attribute(link, "value"), s.url)
}

func tokenOf(path string) string {
	_, token, _ := strings.Cut(path, "token=")
	return token
}

// asksToJoin requests a challenge for the passkey of a new account.
func asksToJoin(b *browsertest.Browser, token, name string) *browsertest.Page {
	return b.Post(newAccount+"/options", url.Values{"token": {token}, "name": {name}})
}

// challenged returns the device's response to the challenge of an invitation.
func (d *device) challenged(b *browsertest.Browser, path string) string {
	d.t.Helper()
	asked := asksToJoin(b, tokenOf(path), "Sam Reed")
	d.needs("the challenge", asked, 200)
	equal(d.t, "Cache-Control", asked.Header.Get("Cache-Control"), "no-store")
	return d.made(asked.Body)
}

func joins(b *browsertest.Browser, path, name, answer string) *browsertest.Page {
	return b.Post(newAccount, url.Values{"token": {tokenOf(path)}, "name": {name}, "credential": {answer}})
}

func TestInvitation_PasskeyInsteadOfPassword(t *testing.T) {
	s := shared(t)
	sam := newAddress()
	path, d, b := s.invited(sam), newDevice(s), s.browser()
	s.wants("the page", b.Get(path), 200, "Use a passkey instead of a password")
	for name, c := range map[string]struct {
		token, name string
		status      int
	}{
		"no name":       {tokenOf(path), " ", 400},
		"unknown token": {"alm_inv_x", "Sam", 404},
		"no token":      {"", "Sam", 404},
	} {
		page := asksToJoin(b, c.token, c.name)
		s.wants(name, page, c.status).Contains("message")
	}
	answer := d.challenged(b, path)
	s.wants("no name", joins(b, path, "", answer), 400, "Enter a name.")
	joined := joins(b, path, "Sam Reed", answer)
	s.needs("joining", joined, 303)
	s.wants("the page after it", joined.Follow(), 200, "You are now a member of Riverside Food Bank.")
	s.rows(1, "users u join account.passkeys p on p.user_id = u.id join account.memberships m on m.user_id = u.id",
		"u.email = $1 and u.name = 'Sam Reed' and u.password_hash is null", sam)
	other := s.browser()
	s.wants("sign-in with the passkey", d.signIn(other), 303)
	equal(t, "signed in", inside(other), true)
	s.wants("removing the only way to sign in", b.Get(keysPage).Send(removeKey, nil), 409)
	for _, password := range []string{"", browsertest.Password} {
		guess := s.browser().Post("/login", url.Values{"email": {sam}, "password": {password}})
		s.wants("a password", guess, 400)
	}
	s.wants("the link again", joins(s.browser(), path, "Sam Reed", answer), 404)
}

// A response is valid once, for the invitation, browser and time of its challenge.
func TestInvitation_RefusesPasskeyForOtherChallenge(t *testing.T) {
	s := shared(t)
	sam, eve := newAddress(), newAddress()
	path, other := s.invited(sam), s.invited(eve)
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
		s.wants(name, page, 400, "The passkey was not accepted")
		equal(t, name+": the name on the page", page.Form(newAccount).Get("name"), "Sam")
	}
	victim.Headers.Set("Sec-Fetch-Site", "cross-site")
	s.wants("another site's form", joins(victim, path, "Sam", "{}"), 403)
	victim.Headers.Del("Sec-Fetch-Site")
	s.rows(0, "users", "email in ($1, $2)", sam, eve)
	taken := s.invited(s.person().Email)
	s.wants("an address with an account", asksToJoin(victim, tokenOf(taken), "Eve"), 200) // the inviter has the link
	forced := joins(victim, taken, "Eve", newDevice(s).challenged(victim, taken))
	s.wants("its account", forced, 409, "sign in to answer")
}

// Concurrent answers to one invitation, with a passkey and with a password, create one account.
func TestInvitation_ConcurrentAnswersCreateOneAccount(t *testing.T) {
	s := shared(t)
	for range 4 {
		sam := newAddress()
		path, b, d := s.invited(sam), s.browser(), newDevice(s)
		answer := d.challenged(b, path)
		statuses := atOnce(2, func(i int) *browsertest.Page {
			if i == 0 {
				return joins(b, path, "Sam", answer)
			}
			return s.browser().Post("/invitation/account",
				url.Values{"token": {tokenOf(path)}, "name": {"Sam"}, "password": {newPassword}})
		})
		equal(t, "answers that created an account", statuses[303], 1)
		s.rows(1, "users", `email = $1
			and (password_hash is not null) <> exists (select from account.passkeys where user_id = users.id)`, sam)
	}
}

const (
	passwordPage = "/settings/security/password"
	removal      = passwordPage + "/remove"
)

func TestPassword_LastSignInMethodIsNotRemoved(t *testing.T) {
	s := shared(t)
	ada := s.person()
	b := s.signedIn(ada)
	page := b.Get(passwordPage)
	omits(t, "the page with the only way to sign in", page.Body, removal)
	const needed = "You need your password to sign in."
	s.needs("the only way to sign in", b.Post(removal, page.Form(passwordPage)), 409, needed)
	d := newDevice(s)
	d.addTo(b, "Laptop")
	s.fixture.Exec(`update account.passkeys set copied_at = now() where user_id = $1`, ada.ID)
	s.wants("with a blocked passkey", b.Post(removal, b.Get(passwordPage).Form(passwordPage)), 409)
	s.fixture.Exec(`update account.passkeys set copied_at = null where user_id = $1`, ada.ID)
	form := b.Get(passwordPage).Form(removal)
	s.stale()
	s.wants("long after the sign-in", b.Post(removal, form).Follow(), 200, "Confirm your identity first.")
	b = s.signedIn(ada)
	s.usedSecondFactor(ada)
	s.wants("another user's form", s.signedIn(s.person()).Post(removal, form), 403)
	s.wants("removing", b.Get(passwordPage).Send(removal, nil).Follow(), 200, "Your password was removed.")
	s.recorded(1, audit.UserPasswordRemoved, ada.ID)
	equal(t, "sign-in with the removed password", s.tries(ada.Email, browsertest.Password), http.StatusBadRequest)
	s.wants("the passkey", d.signIn(s.browser()), 303)
	s.wants("removing the passkey too", b.Get(keysPage).Send(removeKey, nil), 409)
}

// A user who removes the password and the passkey at the same time keeps one of them.
func TestPassword_ConcurrentRemovalsKeepOneSignInMethod(t *testing.T) {
	s := shared(t)
	for range 4 {
		ada := s.person()
		b := s.signedIn(ada)
		newDevice(s).addTo(b, "Laptop")
		paths := []string{removal, removeKey}
		forms := []url.Values{b.Get(passwordPage).Form(removal), b.Get(keysPage).Form(removeKey)}
		atOnce(2, func(i int) *browsertest.Page { return b.Post(paths[i], forms[i]) })
		s.rows(1, "users u", `u.id = $1 and (u.password_hash is not null
			or exists (select from account.passkeys p where p.user_id = u.id))`, ada.ID)
	}
}

func TestPasskeyOffer_OnceForEachBrowserAndUser(t *testing.T) {
	s := shared(t)
	const offer = "Add a passkey:"
	ada, bob := s.person(), s.person()
	b := s.browser()
	b.Headers.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36")
	b.SignIn(ada)
	for _, path := range []string{"/settings/user", "/settings/security"} {
		s.wants(path, b.Get(path), 200, offer+" Chrome on Linux")
	}
	// A page that shows a credential only once must not be left by declining, so only two pages have the offer.
	for _, path := range []string{"/settings/apps", keysPage, "/settings/security/authenticator"} {
		s.lacks(path, b.Get(path), offer)
	}
	declined := b.Get("/settings/security").Send("/settings/passkey-offer", nil)
	s.wants("“Not now”", declined, 303, "/settings/security")
	s.lacks("after “Not now”", declined.Follow(), offer)
	b.Post("/logout", nil)
	b.SignIn(ada)
	s.lacks("the next sign-in", b.Get("/settings/user"), offer)
	b.Post("/logout", nil)
	b.SignIn(bob)
	s.wants("another user", b.Get("/settings/user"), 200, offer)
	elsewhere := s.signedIn(ada)
	s.wants("another browser", elsewhere.Get("/settings/user"), 200, offer)
	d := newDevice(s)
	d.addTo(elsewhere, "Laptop")
	s.lacks("a user who has a passkey", elsewhere.Get("/settings/user"), offer)
	third := s.browser()
	d.signIn(third)
	s.lacks("a sign-in with a passkey", third.Get("/settings/user"), offer)
	without := bare(t).forTest(t)
	without.lacks("without passkeys", without.signedIn(without.person()).Get("/settings/user"), offer)
}

// A member of a workspace that requires a second factor adds a passkey and returns to the page. After that, a sign-in
// with the password alone can neither use the workspace nor change the passkeys until the passkey is used.
func TestSecondFactor_PasskeyReturnsToPageAndIsNotReplaced(t *testing.T) {
	s := shared(t)
	ada := s.member(perm.AccountReadMembers)
	s.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, s.fixture.WorkspaceID)
	const members, confirm = "/settings/members", "confirm your identity first"
	b := s.signedIn(ada)
	s.needs("the members", b.Get(members), 403, "Add a passkey")
	page := b.Get(keysPage + "?return=" + url.QueryEscape(members))
	equal(t, "where the form returns", page.Form(keysPage).Get("return"), members)
	d := newDevice(s)
	answer := d.made(s.options(b, keysPage+"/options"))
	added := page.Send(keysPage, browsertest.Fields{"name": "Laptop", "credential": answer})
	s.needs("adding", added, 303, members)
	s.needs("the members after it", added.Follow(), 200)
	thief := s.signedIn(ada)
	s.wants("the password alone", thief.Get(members), 403, "your password alone")
	s.wants("the passkeys, with the password alone", thief.Get(keysPage), 200, confirm)
	s.wants("a challenge", thief.Post(keysPage+"/options", nil), 403).Contains("/login/again")
	own := s.signedIn(ada)
	again := d.signed(s.options(own, "/login/again/passkey/options"))
	confirmed := own.Post("/login/again/passkey", url.Values{"credential": {again}, "return": {members}})
	s.needs("confirmed with the passkey", confirmed, 303, members)
	s.wants("the members then", confirmed.Follow(), 200)
	s.lacks("the passkeys then", own.Get(keysPage), confirm)
}

func TestChromium_InvitationWithPasskey(t *testing.T) {
	s := shared(t)
	sam := newAddress()
	c := openChromium(t, s)
	c.open(s.invited(sam))
	c.press("button", "Use a passkey instead of a password")
	c.sees("p", "Enter a name.")
	c.fill("name", "Sam Reed")
	c.press("button", "Use a passkey instead of a password")
	c.sees("div", "You are now a member of Riverside Food Bank.")
	c.signOut()
	c.press("button", "Sign in with a passkey")
	c.sees("p", sam)
	c.noFaults()
}

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

// The mail of a request has a link to a form with the requested access. Text of the user cannot add a header.
func TestAccessRequest_MailOpensForm(t *testing.T) {
	s := mailing(t)
	boss := s.member(perm.AccountReadMembers, perm.AccountWriteMembers)
	muted, reader := s.member(perm.AccountReadMembers, perm.AccountWriteMembers), s.member(perm.ProgrammesRead)
	eve := newAddress()
	s.fixture.Exec(`insert into account.unwanted_mails (user_id, kind) values ($1, 'access_requested')`, muted.ID)
	s.fixture.Exec(`update account.users set name = $2 where id = $1`, reader.ID, "Sam\r\nBcc: "+eve)
	answer := s.signedIn(reader).Get("/settings/members").Send("/access-requests", nil)
	s.needs("the request", answer, answer.Status, "We asked the administrators")
	m := s.mail(boss.Email, "Request for access to Riverside Food Bank", 1)
	contains(t, "the mail", m.Text, reader.Email, "asks for access")
	omits(t, "the mail", m.Text, "\nBcc:")
	form := s.signedIn(boss).Get(s.link(m)).Form("/settings/members/permissions")
	equal(t, "the form has", strings.Join(form["permissions"], " "), "programmes:read:programmes account:read:members")
	equal(t, "mails to others", len(s.box.Messages(muted.Email))+len(s.box.Messages(eve)), 0)
}
