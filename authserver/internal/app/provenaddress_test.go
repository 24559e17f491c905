package app_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// occupied makes the account of a new address as an inviter does who opens the link that is shown to her: with a
// password, a passkey, an authenticator app, a token, a grant and the link of a reset. It returns her browser.
func (s *site) occupied() (browsertest.Person, *browsertest.Browser) {
	s.t.Helper()
	who := browsertest.Person{Email: newAddress()}
	b, path := s.browser(), s.invited(who.Email)
	joined := b.Get(path).Send("/invitation/account", browsertest.Fields{"name": "Sam", "password": newPassword})
	s.needs("creating the account", joined, 303, s.welcome())
	who.ID = read[uuid.UUID](s, `select id from account.users where email = $1`, who.Email)
	s.fill(who)
	return who, b
}

// welcome returns the local path of the page that follows when a user has joined the workspace.
func (s *site) welcome() string { return "/settings/welcome?tenant=" + s.fixture.WorkspaceID.String() }

// fill gives a user everything that gives access to an account besides a password.
func (s *site) fill(who browsertest.Person) {
	s.t.Helper()
	client := s.fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	s.fixture.Token(who.ID, perm.ProgrammesRead)
	s.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
		ends_at)
		select gen_random_uuid(), kind, id, $1, tenant_id, '{}', 'r', s, now() + interval '1 day'
		from account.oauth_clients, unnest(array['active', 'pending']) s where id = $2`, who.ID, client.ID)
	for _, insert := range []string{
		`insert into account.authenticators (user_id, secret, last_step) values ($1, 'x', 0)`,
		`insert into account.recovery_codes (user_id, code_hash) values ($1, sha256('x'))`,
		`insert into account.identities (issuer, subject, user_id)
			values ('https://former.test', gen_random_uuid()::text, $1)`,
		`insert into account.password_resets (token_hash, user_id, expires_at)
			values (sha256(gen_random_uuid()::text::bytea), $1, now() + interval '1 hour')`,
		`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
			select gen_random_uuid(), m.tenant_id, $1, 'https://evil.example', '{x}', 'x', 'x', 0, now()
			from account.memberships m where m.user_id = $1`,
	} {
		s.fixture.Exec(insert, who.ID)
	}
	s.insertPasskeys(1, who)
}

// insertPasskeys gives a user passkeys that no device has.
func (s *site) insertPasskeys(n int, who browsertest.Person) {
	s.t.Helper()
	s.fixture.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
		transports, backup_eligible, backed_up)
		select gen_random_uuid(), $1, 'Laptop', uuid_send(gen_random_uuid()), 'k', 0, '', '{}', false, false
		from generate_series(1, $2)`, who.ID, n)
}

// accessOf lists what gives access to an account.
func (s *site) accessOf(user uuid.UUID) string {
	s.t.Helper()
	var all []string
	for _, table := range []string{
		"users where password_hash is not null and id = $1", "passkeys where user_id = $1",
		"authenticators where user_id = $1", "recovery_codes where user_id = $1", "identities where user_id = $1",
		"sign_ins where ended_at is null and user_id = $1", "password_resets where used_at is null and user_id = $1",
		"personal_access_tokens where revoked_at is null and user_id = $1",
		"grants where state <> 'revoked' and user_id = $1", "webhooks where user_id = $1",
	} {
		name, _, _ := strings.Cut(table, " ")
		if n := read[int](s, `select count(*) from account.`+table, user); n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(all, ", ")
}

const wholeAccess = "1 users, 1 passkeys, 1 authenticators, 1 recovery_codes, 1 identities, 1 sign_ins, " +
	"1 password_resets, 1 personal_access_tokens, 2 grants, 1 webhooks"

// had requires what gives access to an account, and what proved its address.
func (s *site) had(what string, user uuid.UUID, access, provenBy string) {
	s.t.Helper()
	equal(s.t, what+": what gives access", s.accessOf(user), access)
	equal(s.t, what+": what proved the address", read[string](s, `select coalesce(email_proven_by, '')
		from account.users where id = $1 and (email_proven_at is null) = (email_proven_by is null)`, user), provenBy)
}

// The person with the address gets the account alone: what an inviter made in their name has ended.
func TestProven_UpstreamSignInEndsWhatUnprovenAccountHad(t *testing.T) {
	s := shared(t)
	p := s.provider()
	ceo, inviter := s.occupied()
	s.had("before", ceo.ID, wholeAccess, "")
	p.vouching(map[string]any{"email": ceo.Email})
	b := s.browser()
	s.needs("the takeover", p.takesOver(s, b), 303, "/settings/apps")
	s.needs("the user", b.Get("/settings/user"), 200, "Your e-mail address was confirmed")
	s.had("after", ceo.ID, "1 identities, 1 sign_ins", "upstream")
	equal(t, "the inviter is signed in", inside(inviter), false)
	s.rows(1, "memberships", "user_id = $1", ceo.ID)
	equal(t, "sign-in with the inviter's password", s.tries(ceo.Email, newPassword), 400)
	s.recorded(1, audit.UserEmailProven, ceo.ID)
	s.fixture.Token(ceo.ID, perm.ProgrammesRead)
	p.through(s, s.browser())
	s.had("after the second sign-in", ceo.ID, "1 identities, 2 sign_ins, 1 personal_access_tokens", "upstream")
}

// A link that the previous release has made while the release changes proves nothing until the next sign-in with it.
func TestProven_LinkedUnprovenAccountIsTakenOverAtSignIn(t *testing.T) {
	s := shared(t)
	p := s.provider()
	ceo, _ := s.occupied()
	p.vouching(map[string]any{"email": ceo.Email})
	p.takesOver(s, s.browser())
	s.fill(ceo)
	s.fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, ceo.ID)
	p.takesOver(s, s.browser())
	s.had("after", ceo.ID, "1 identities, 1 sign_ins", "upstream")
}

// takesOver signs in at the provider and confirms the takeover.
func (p *provider) takesOver(s *site, b *browsertest.Browser) *browsertest.Page {
	p.t.Helper()
	asked := p.through(s, b)
	s.needs("sign-in at the provider", asked, 200, "This ends everything that gives access to it now")
	return asked.Send(confirmTakeover, nil)
}

const confirmTakeover = "/login/upstream/confirm"

// A link on another site can send a browser with a session at the provider through the whole sign-in. It ends nothing
// before the person at the browser has confirmed what ends.
func TestProven_UpstreamTakeoverIsConfirmedFirst(t *testing.T) {
	s := shared(t)
	p := s.provider()
	ceo, _ := s.occupied()
	p.vouching(map[string]any{"email": ceo.Email})
	b := s.browser()
	form := p.through(s, b).Form(confirmTakeover)
	unchanged := func(what string, page *browsertest.Page, status int) {
		t.Helper()
		s.wants(what, page, status)
		s.had(what, ceo.ID, wholeAccess, "")
		equal(t, what+": signed in", inside(b), false)
	}
	unchanged("without a form", b.Get("/settings/user"), 303)
	unchanged("an empty form", b.Post(confirmTakeover, url.Values{}), 400)
	unchanged("another key", b.Post(confirmTakeover, url.Values{"key": {strings.Repeat("A", 26)}}), 400)
	other := s.browser()
	other.Get("/login")
	unchanged("another browser", other.Post(confirmTakeover, form), 400)
	b.Headers.Set("Sec-Fetch-Site", "cross-site")
	unchanged("another site", b.Post(confirmTakeover, form), 403)
	b.Headers.Del("Sec-Fetch-Site")
	unchanged("a GET", b.Get(confirmTakeover+"?key="+form.Get("key")), 405)
	s.wants("confirmed", b.Post(confirmTakeover, form), 303, "/settings/apps")
	equal(t, "confirmed: signed in", inside(b), true)
	s.wants("sent twice", b.Post(confirmTakeover, form), 303, "/settings/user")
	s.had("after", ceo.ID, "1 identities, 1 sign_ins", "upstream")
	s.recorded(1, audit.UserEmailProven, ceo.ID)
	b.Post("/logout", nil)
	s.refuses(b, "sent again after signing out", b.Post(confirmTakeover, form), 400)
}

// Nothing of a proven account ends when an account at the provider is linked.
func TestProven_UpstreamSignInKeepsProvenAccount(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	s.fill(ada)
	before := s.accessOf(ada.ID)
	p.vouching(map[string]any{"email": ada.Email})
	p.through(s, s.browser())
	want := strings.Replace(before, "1 identities", "2 identities, 1 sign_ins", 1)
	equal(t, "what gives access", s.accessOf(ada.ID), want)
}

// The page of a link that the inviter has is the same whether the address has an account or not.
func TestProven_ShownInvitationDoesNotTellWhetherAccountExists(t *testing.T) {
	s := shared(t)
	page := func(email string) string {
		path := s.invited(email)
		got := s.browser().Get(path)
		s.wants(email, got, 200, "Sign in to accept", "Create your account")
		text := strings.ReplaceAll(got.Body, tokenOf(path), "TOKEN")
		text = strings.ReplaceAll(text, url.QueryEscape(tokenOf(path)), "TOKEN")
		asked := asksToJoin(s.browser(), tokenOf(path), "Sam")
		declined := s.browser().Post("/invitation", url.Values{"token": {tokenOf(path)}, "decision": {"decline"}})
		return fmt.Sprint(strings.ReplaceAll(text, email, "EMAIL"), asked.Status, declined.Status)
	}
	unknown := "person-" + uuid.NewString()[:8] + "@example.org"
	equal(t, "the page of an address with an account", stripped(page(s.person().Email)), stripped(page(unknown)))
}

// stripped removes what differs between any two pages.
func stripped(page string) string {
	var kept []string
	for line := range strings.Lines(page) {
		differs := func(word string) bool { return strings.Contains(line, word) }
		if !slices.ContainsFunc([]string{"nonce", "Request", "invites"}, differs) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// An unproven account joins no other workspace, and the person gets to know why.
func TestProven_UnprovenAccountAcceptsNoInvitation(t *testing.T) {
	s := shared(t)
	ceo, b := s.occupied()
	s.fixture.WorkspaceID = s.fixture.Workspace("Other")
	path := s.invited(ceo.Email)
	accept := func() *browsertest.Page {
		return b.Get(path).Send("/invitation", browsertest.Fields{"decision": "accept"})
	}
	const refusal = "Ask the person who runs this service to confirm your address"
	s.needs("an unproven account", accept(), 403, refusal)
	s.rows(0, "memberships", "user_id = $1 and tenant_id = $2", ceo.ID, s.fixture.WorkspaceID)
	s.fixture.Exec(`update account.users set email_proven_at = now(), email_proven_by = 'operator'
		where id = $1`, ceo.ID)
	s.wants("a proven account", accept(), 303, s.welcome())
	s.rows(1, "memberships", "user_id = $1 and tenant_id = $2", ceo.ID, s.fixture.WorkspaceID)
}

// The mailed link of an invitation proves the address of the account that it creates.
func TestProven_MailedInvitationProvesAddress(t *testing.T) {
	s := mailing(t)
	sam := newAddress()
	s.invites(sam)
	path := s.link(s.mail(sam, "Invitation to Riverside Food Bank", 1))
	s.browser().Get(path).Send("/invitation/account", browsertest.Fields{"name": "Sam", "password": newPassword})
	s.rows(1, "users", "email = $1 and email_proven_at is not null and email_proven_by = 'invitation'", sam)
}

// A reset proves the address, and ends all that an unproven account had: the form has no choice about it. A second
// factor of the account does not prevent it, whether or not a workspace requires one: another person may have added it.
func TestProven_ResetOfUnprovenAccountEndsWhatItHad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		app, required, operator bool
		by                      string
	}{
		{"nothing", false, false, false, "reset"},
		{"an app", true, false, false, "reset"},
		{"required", false, true, false, "reset"},
		{"an operator's link", true, true, true, "operators_link"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mailing(t)
			boss, ceo := s.member(perm.AccountWriteMembers), s.member(perm.ProgrammesRead)
			s.fill(ceo)
			s.fixture.Exec(`delete from account.password_resets where user_id = $1`, ceo.ID)
			s.fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`,
				ceo.ID)
			s.fixture.Exec(`update account.tenants set second_factor_required = $2 where id = $1`,
				s.fixture.WorkspaceID, c.required)
			inviter := s.browser()
			if !c.app {
				s.fixture.Exec(`delete from account.authenticators where user_id = $1`, ceo.ID)
				inviter.SignIn(ceo)
			}
			link := s.operatorsLink
			if !c.operator {
				link = s.forgotten
			}
			form := s.browser().Get(link(ceo))
			s.wants("the form", form, 200, "Your e-mail address was never confirmed").Lacks("Your passkeys stay")
			form.Send("/login/reset", browsertest.Fields{"new-password": newPassword})
			s.had("after, with the sign-in of the reset", ceo.ID, "1 users, 1 sign_ins", c.by)
			equal(t, "the inviter is signed in", inside(inviter), false)
			s.recorded(1, audit.UserEmailProven, ceo.ID)
			s.mail(ceo.Email, "Your e-mail address was confirmed", 1)
			s.mail(boss.Email, "A member of Riverside Food Bank confirmed their e-mail address", 1)
		})
	}
}

// A reset names the tokens and connections, and ends those that stay ticked and those that it did not list.
func TestReset_EndsTokensAndConnectionsUnlessKept(t *testing.T) {
	s := mailing(t)
	who := s.person()
	s.removePassword(who)
	client := s.fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	grants := func() {
		s.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, ends_at)
			select gen_random_uuid(), kind, id, $1, tenant_id, '{}', 'r', 'active', now() + interval '1 day'
			from account.oauth_clients, generate_series(1, 2) where id = $2`, who.ID, client.ID)
	}
	s.fixture.Token(who.ID, perm.ProgrammesRead)
	s.fixture.Token(who.ID, perm.ProgrammesRead)
	grants()
	form := s.browser().Get(s.forgotten(who))
	s.needs("the form", form, 200, "Personal access token", "Connected app")
	fields := form.Form("/login/reset")
	var ticked []string // the tokens, then the connections
	for id := range strings.FieldsSeq(fields.Get("listed")) {
		if fields.Get("end-"+id) != "" {
			ticked = append(ticked, id)
		}
	}
	if len(ticked) != 4 {
		t.Fatalf("%d ticked: %s", len(ticked), form.Text())
	}
	grants() // by a thief, while the page is open
	fields.Del("end-" + ticked[0])
	fields.Del("end-" + ticked[3])
	fields.Set("new-password", newPassword)
	s.needs("the reset", s.browser().Post("/login/reset", fields), 303, "/settings/user")
	s.had("after a reset", who.ID, "1 users, 1 sign_ins, 1 personal_access_tokens, 1 grants", "operator")
	s.recorded(1, audit.TokenRevoked, who.ID)
	s.recorded(3, audit.GrantRevoked, who.ID)
	form = s.browser().Get(s.forgotten(who))
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + " two"})
	s.had("after a reset with all ticked", who.ID, "1 users, 1 sign_ins", "operator")
}
