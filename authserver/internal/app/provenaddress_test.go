package app_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// occupied makes the account of an address as an inviter does who opens the link that is shown to her: with a password,
// a passkey, an authenticator app, a token, a grant and the link of a reset. It returns the inviter's browser.
func (s *site) occupied(email string) (browsertest.Person, *browsertest.Browser) {
	s.t.Helper()
	b, path := s.browser(), s.invited(email)
	joined := b.Get(path).Send("/invitation/account", browsertest.Fields{"name": "Sam", "password": newPassword})
	if joined.Location() != "/settings/user" {
		s.t.Fatalf("%d %s", joined.Status, joined.Text())
	}
	who := browsertest.Person{Email: email}
	s.must(s.fixture.Owner.QueryRow(s.t.Context(), `select id from account.users where email = $1`, email).
		Scan(&who.ID))
	s.fill(who)
	return who, b
}

// fill gives a user everything that gives access to an account besides a password.
func (s *site) fill(who browsertest.Person) {
	s.t.Helper()
	s.fixture.Connector("https://api.example.org/mcp", perm.ProgrammesRead)
	s.fixture.Token(who.ID, perm.ProgrammesRead)
	for _, insert := range []string{
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, ends_at)
			select gen_random_uuid(), kind, id, $1, tenant_id, '{}', 'r', s, now() + interval '1 day'
			from account.oauth_clients, unnest(array['active', 'pending']) s`,
		`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, transports,
			backup_eligible, backed_up)
			values (gen_random_uuid(), $1, 'Laptop', uuid_send(gen_random_uuid()), 'k', 0, '', '{}', false, false)`,
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
		if n := s.count(`select count(*) from account.`+table, user); n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(all, ", ")
}

const wholeAccess = "1 users, 1 passkeys, 1 authenticators, 1 recovery_codes, 1 identities, 1 sign_ins, " +
	"1 password_resets, 1 personal_access_tokens, 2 grants, 1 webhooks"

func (s *site) provenBy(user uuid.UUID) (by string) {
	s.t.Helper()
	s.must(s.fixture.Owner.QueryRow(s.t.Context(), `select coalesce(email_proven_by, '') from account.users
		where id = $1
		and (email_proven_at is null) = (email_proven_by is null)`, user).Scan(&by))
	return by
}

// The person with the address gets the account alone: what an inviter made in their name has ended.
func TestProven_UpstreamSignInEndsWhatUnprovenAccountHad(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ceo, inviter := s.occupied("ceo@example.org")
	if got := s.accessOf(ceo.ID); got != wholeAccess || s.provenBy(ceo.ID) != "" {
		t.Fatalf("before: %s, proven by %q", got, s.provenBy(ceo.ID))
	}
	p.vouching(map[string]any{"email": ceo.Email})
	b := s.browser()
	page := p.takesOver(s, b)
	if page.Location() != "/settings/apps" || !b.Get("/settings/user").HasText("Your e-mail address was confirmed") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	if got := s.accessOf(ceo.ID); got != "1 identities, 1 sign_ins" || s.provenBy(ceo.ID) != "upstream" {
		t.Errorf("after: %s, proven by %q", got, s.provenBy(ceo.ID))
	}
	if inside(inviter) || s.count(`select count(*) from account.memberships where user_id = $1`, ceo.ID) != 1 {
		t.Error("the inviter is still signed in, or the membership ended")
	}
	old := s.browser().Post("/login", url.Values{"email": {ceo.Email}, "password": {newPassword}})
	if old.Status != 400 || s.events(ceo.ID, audit.UserEmailProven) != 1 {
		t.Errorf("the inviter's password: %d; %d events", old.Status, s.events(ceo.ID, audit.UserEmailProven))
	}
	s.fixture.Token(ceo.ID, perm.ProgrammesRead)
	p.through(s, s.browser())
	if got := s.accessOf(ceo.ID); got != "1 identities, 2 sign_ins, 1 personal_access_tokens" {
		t.Errorf("after the second sign-in: %s", got)
	}
}

// A link that the previous release has made while the release changes proves nothing until the next sign-in with it.
func TestProven_LinkedUnprovenAccountIsTakenOverAtSignIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ceo, _ := s.occupied("ceo@example.org")
	p.vouching(map[string]any{"email": ceo.Email})
	p.takesOver(s, s.browser())
	s.fill(browsertest.Person{ID: ceo.ID})
	s.fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, ceo.ID)
	p.takesOver(s, s.browser())
	if got := s.accessOf(ceo.ID); got != "1 identities, 1 sign_ins" || s.provenBy(ceo.ID) != "upstream" {
		t.Errorf("%s, proven by %q", got, s.provenBy(ceo.ID))
	}
}

// takesOver signs in at the provider and confirms the takeover.
func (p *provider) takesOver(s *site, b *browsertest.Browser) *browsertest.Page {
	p.t.Helper()
	asked := p.through(s, b)
	if asked.Status != 200 || !asked.HasText("This ends everything that gives access to it now") {
		p.t.Fatalf("%d %s", asked.Status, asked.Text())
	}
	return asked.Send(confirmTakeover, nil)
}

const confirmTakeover = "/login/upstream/confirm"

// A link on another site can send a browser with a session at the provider through the whole sign-in. It ends nothing
// before the person at the browser has confirmed what ends.
func TestProven_UpstreamTakeoverIsConfirmedFirst(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ceo, _ := s.occupied("ceo@example.org")
	p.vouching(map[string]any{"email": ceo.Email})
	b := s.browser()
	form := p.through(s, b).Form(confirmTakeover)
	unchanged := func(what string, page *browsertest.Page, status int) {
		t.Helper()
		got := s.accessOf(ceo.ID)
		if page.Status != status || got != wholeAccess || s.provenBy(ceo.ID) != "" || inside(b) {
			t.Errorf("%s: %d, %s, proven by %q", what, page.Status, got, s.provenBy(ceo.ID))
		}
	}
	unchanged("without a form", b.Get("/settings/user"), 303)
	unchanged("an empty form", b.Post(confirmTakeover, url.Values{}), 400)
	unchanged("another key", b.Post(confirmTakeover, url.Values{"key": {strings.Repeat("A", 26)}}), 400)
	other := s.browser()
	other.Get("/login")
	unchanged("another browser", other.Post(confirmTakeover, form), 400)
	own := b.Headers.Clone()
	b.Headers.Set("Sec-Fetch-Site", "cross-site")
	unchanged("another site", b.Post(confirmTakeover, form), 403)
	b.Headers = own
	unchanged("a GET", b.Get(confirmTakeover+"?key="+form.Get("key")), 405)
	if done := b.Post(confirmTakeover, form); done.Location() != "/settings/apps" || !inside(b) {
		t.Errorf("confirmed: %d %q", done.Status, done.Location())
	}
	if again := b.Post(confirmTakeover, form); again.Location() != "/settings/user" {
		t.Errorf("sent twice: %d %q", again.Status, again.Location())
	}
	if got := s.accessOf(ceo.ID); got != "1 identities, 1 sign_ins" || s.events(ceo.ID, audit.UserEmailProven) != 1 {
		t.Errorf("after: %s, %d events", got, s.events(ceo.ID, audit.UserEmailProven))
	}
	b.Post("/logout", nil)
	if again := b.Post(confirmTakeover, form); again.Status != 400 || inside(b) {
		t.Errorf("sent again after signing out: %d", again.Status)
	}
}

// Nothing of a proven account ends when an account at the provider is linked.
func TestProven_UpstreamSignInKeepsProvenAccount(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	s.fill(ada)
	before := s.accessOf(ada.ID)
	p.vouching(map[string]any{"email": ada.Email})
	p.through(s, s.browser())
	if got := s.accessOf(ada.ID); got != strings.Replace(before, "1 identities", "2 identities, 1 sign_ins", 1) {
		t.Errorf("before: %s; after: %s", before, got)
	}
}

// The page of a link that the inviter has is the same whether the address has an account or not.
func TestProven_ShownInvitationDoesNotTellWhetherAccountExists(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *app.Config) { c.Passkeys = true })
	known := s.person()
	page := func(email string) string {
		path := s.invited(email)
		got := s.browser().Get(path)
		if !got.HasText("Sign in to accept") || !got.HasText("Create your account") {
			t.Errorf("%s: %s", email, got.Text())
		}
		text := strings.ReplaceAll(got.Body, tokenOf(path), "TOKEN")
		text = strings.ReplaceAll(text, url.QueryEscape(tokenOf(path)), "TOKEN")
		asked := s.browser().Post(newAccount+"/options", url.Values{"token": {tokenOf(path)}, "name": {"Sam"}})
		declined := s.browser().Post("/invitation", url.Values{"token": {tokenOf(path)}, "decision": {"decline"}})
		return fmt.Sprint(strings.ReplaceAll(text, email, "EMAIL"), asked.Status, declined.Status)
	}
	with, without := page(known.Email), page("person-00000000@example.org")
	if stripped(with) != stripped(without) {
		t.Errorf("with an account:\n%s\nwithout:\n%s", with, without)
	}
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
	t.Parallel()
	s := serve(t, func(c *app.Config) {})
	ceo, b := s.occupied("ceo@example.org")
	other := s.fixture.Workspace("Other")
	s.fixture.WorkspaceID = other
	path := s.invited(ceo.Email)
	page := b.Get(path).Send("/invitation", browsertest.Fields{"decision": "accept"})
	if page.Status != 403 || !page.HasText("Ask the person who runs this service to confirm your address") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	member := `select count(*) from account.memberships where user_id = $1 and tenant_id = $2`
	if s.count(member, ceo.ID, other) != 0 {
		t.Error("the account became a member")
	}
	s.fixture.Exec(`update account.users set email_proven_at = now(), email_proven_by = 'operator'
		where id = $1`, ceo.ID)
	page = b.Get(path).Send("/invitation", browsertest.Fields{"decision": "accept"})
	if page.Location() != "/settings/user" || s.count(member, ceo.ID, other) != 1 {
		t.Errorf("a proven account: %d %s", page.Status, page.Text())
	}
}

// The mailed link of an invitation proves the address of the account that it creates.
func TestProven_MailedInvitationProvesAddress(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	boss := p.person()
	p.fixture.Join(p.fixture.WorkspaceID, boss.ID,
		perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	p.signedIn(boss).Get("/settings/members/invite").Send("/settings/members/invite",
		browsertest.Fields{"email": "sam@example.org", "permissions": string(perm.ProgrammesRead)})
	path := p.link(p.mail("sam@example.org", "Invitation to "+p.workspaceName(), 1))
	p.browser().Get(path).Send("/invitation/account", browsertest.Fields{"name": "Sam", "password": newPassword})
	if n := p.count(`select count(*) from account.users where email = 'sam@example.org' and email_proven_at is not null
		and email_proven_by = 'invitation'`); n != 1 {
		t.Error("the address is not proven")
	}
}

func (s *site) workspaceName() (name string) {
	s.t.Helper()
	s.must(s.fixture.Owner.QueryRow(s.t.Context(), `select name from account.tenants where id = $1`,
		s.fixture.WorkspaceID).Scan(&name))
	return name
}

// A reset proves the address, and ends all that an unproven account had: the form has no choice about it. A second
// factor of the account does not prevent it, whether or not a workspace requires one: another person may have added it.
func TestProven_ResetOfUnprovenAccountEndsWhatItHad(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	boss := p.person()
	p.fixture.Join(p.fixture.WorkspaceID, boss.ID, perm.AccountWriteMembers)
	for i, c := range []struct {
		app, required, operator bool
		by                      string
	}{
		{false, false, false, "reset"},
		{true, false, false, "reset"},
		{false, true, false, "reset"},
		{true, true, true, "operators_link"},
	} {
		ceo := p.person()
		p.fixture.Join(p.fixture.WorkspaceID, ceo.ID, perm.ProgrammesRead)
		p.fill(ceo)
		p.fixture.Exec(`delete from account.password_resets where user_id = $1`, ceo.ID)
		p.fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, ceo.ID)
		p.fixture.Exec(`update account.tenants set second_factor_required = $1`, c.required)
		if !c.app {
			p.fixture.Exec(`delete from account.authenticators where user_id = $1`, ceo.ID)
		}
		inviter := p.browser()
		if !c.app {
			inviter.SignIn(ceo)
		}
		var form *browsertest.Page
		if c.operator {
			form = p.browser().Get(p.operatorsLink(ceo))
		} else {
			form = p.browser().Get(p.forgotten(ceo, 1))
		}
		if !form.HasText("Your e-mail address was never confirmed") || form.HasText("Your passkeys stay") {
			t.Errorf("%v: %s", c, form.Text())
		}
		form.Send("/login/reset", browsertest.Fields{"new-password": newPassword})
		if got := p.accessOf(ceo.ID); got != "1 users" || p.provenBy(ceo.ID) != c.by || inside(inviter) {
			t.Errorf("%v: %s, proven by %q", c, got, p.provenBy(ceo.ID))
		}
		if n := p.events(ceo.ID, audit.UserEmailProven); n != 1 {
			t.Errorf("%v: %d events", c, n)
		}
		p.mail(ceo.Email, "Your e-mail address was confirmed", 1)
		p.mail(boss.Email, "A member of "+p.workspaceName()+" confirmed their e-mail address", i+1)
	}
}

// A reset names the tokens and connections, and ends those that stay ticked and those that it did not list.
func TestReset_EndsTokensAndConnectionsUnlessKept(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	p.fixture.Exec(`update account.users set password_hash = null where id = $1`, who.ID)
	p.fixture.Connector("https://api.example.org/mcp", perm.ProgrammesRead)
	grants := func() {
		p.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions,
			resource, state,
			ends_at) select gen_random_uuid(), kind, id, $1, tenant_id, '{}', 'r', 'active', now() + interval '1 day'
			from account.oauth_clients, generate_series(1, 2)`, who.ID)
	}
	p.fixture.Token(who.ID, perm.ProgrammesRead)
	p.fixture.Token(who.ID, perm.ProgrammesRead)
	grants()
	form := p.browser().Get(p.forgotten(who, 1))
	fields := form.Form("/login/reset")
	var ticked []string // the tokens, then the connections
	for id := range strings.FieldsSeq(fields.Get("listed")) {
		if fields.Get("end-"+id) != "" {
			ticked = append(ticked, id)
		}
	}
	if len(ticked) != 4 || !form.HasText("Personal access token") || !form.HasText("Connected app") {
		t.Fatalf("%d ticked: %s", len(ticked), form.Text())
	}
	grants() // by a thief, while the page is open
	fields.Del("end-" + ticked[0])
	fields.Del("end-" + ticked[3])
	fields.Set("new-password", newPassword)
	if done := p.browser().Post("/login/reset", fields); done.Location() != "/login?password-set=1" {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
	if got := p.accessOf(who.ID); got != "1 users, 1 personal_access_tokens, 1 grants" {
		t.Errorf("left: %s", got)
	}
	if n := p.events(who.ID, audit.TokenRevoked); n != 1 || p.events(who.ID, audit.GrantRevoked) != 3 {
		t.Errorf("%d tokens have an event", n)
	}
	form = p.browser().Get(p.forgotten(who, 2))
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + " two"})
	if got := p.accessOf(who.ID); got != "1 users" {
		t.Errorf("left after a reset with all ticked: %s", got)
	}
}
