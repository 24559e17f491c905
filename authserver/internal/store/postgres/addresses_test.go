package postgres_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestProven_UpgradeFindsWhatEarlierDataProve(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t, testkit.NewDatabase(t))
	migrateBefore(t, "00330", database)
	owner := connect(t, database.Owner)
	event := func(action, actor, ago string) string {
		return `insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, at)
			select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', id, ` + actor + `, '` + action + `',
			'user:' || id, now() - interval '` + ago + `' from account.users where id = $1`
	}
	const self = "'user:' || id"
	const linked = `insert into account.identities (issuer, subject, user_id, created_at)
		values ('i', $1::uuid::text, $1, now() - interval '1 day')`
	workspace, client := uuid.New(), uuid.New()
	for _, sql := range []string{
		`insert into account.organisations (id, name) values ($1, 'x')`,
		`insert into account.tenants (id, organisation_id, name) values ($1, $1, 'x')`,
		`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			connector_platform, resource, token_endpoint_auth_method)
			values ('` + client.String() + `', 'connector', $1, 'x', '{}', '{}', 'claude', 'r', 'none')`,
	} {
		must(t, errOf(owner.Exec(t.Context(), sql, workspace)))
	}
	passkey := func(at string) string {
		return `insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
			transports, backup_eligible, backed_up, created_at) values (gen_random_uuid(), $1, 'x',
			uuid_send(gen_random_uuid()), 'k', 0, '', '{}', false, false, ` + at + `)`
	}
	token := func(at, revoked string) string {
		return `insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, created_at,
			expires_at, revoked_at) values (gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), $1,
			'` + workspace.String() + `', 'x', '{}', ` + at + `, now() + interval '1 day', ` + revoked + `)`
	}
	grant := func(at, state string) string {
		return `insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			created_at, ends_at, revoked_at) select gen_random_uuid(), 'connector', '` + client.String() + `', $1::uuid,
			'` + workspace.String() + `', '{}', 'r', s, ` + at + `, now() + interval '1 day',
			now() + case when s <> 'revoked' then null::interval else interval '0' end
			from (values ('` + state + `')) v (s)`
	}
	const (
		before   = "now() - interval '2 days'" // before the account was linked, and before the password was set
		password = `update account.users set password_hash = 'x' where id = $1`
		app      = `insert into account.authenticators (user_id, secret, last_step, created_at)
			values ($1, 'x', 0, now() - interval '2 hours')`
		signIn = `insert into account.sign_ins (id, user_id, created_at, expires_at, method, address, user_agent)
			select gen_random_uuid(), $1::uuid, now() - interval '25 hours', now() - interval '13 hours', 'password',
				'', ''`
	)
	reset := event(audit.UserPasswordReset, self, "1 hour")
	type account struct {
		by   string // who or what proved the address, or "" if nothing did
		made []string
	}
	is := func(by string, made ...string) account { return account{by, made} }
	added, asked := event(audit.UserAdded, "'admin'", "3 days"), audit.UserResetRequested
	users := map[string]account{
		"invited, by a link that may have been shown": is("", event(audit.UserAdded, self, "3 days")),
		"added by an operator":                        is("operator", added, reset),

		"linked": is("upstream", linked, passkey("now()"), token("now()", "null"),
			grant("now()", "active")),
		"linked, with a password of unknown age": is("", linked, password),
		"linked after a passkey was added":       is("", linked, passkey(before)),
		"linked after a token was created":       is("", linked, token(before, "null")),
		"linked after a grant was approved":      is("", linked, grant(before, "active")),
		"linked while signed in":                 is("", linked, signIn),
		"linked after both ended": is("upstream", linked, token(before, "now()"),
			grant(before, "revoked")),

		"reset by a mailed link":                 is("reset", event(asked, "'anonymous'", "61 minutes"), reset),
		"reset by a link, with a later passkey":  is("reset", password, reset, passkey("now()")),
		"reset by a link, with an older passkey": is("", reset, passkey(before)),
		"reset by a link, with an older token":   is("", reset, token(before, "null")),
		"reset by a link, with an older app":     is("", reset, app),
		"reset by an operator's link":            is("", event(asked, "'admin'", "61 minutes"), reset),

		"changed by mailed links": is("email_change", event(audit.UserEmailChanged, self, "1 day")),
		"changed by an operator":  is("", event(audit.UserEmailChanged, "'admin'", "1 day")),
	}
	ids := map[string]uuid.UUID{}
	for name, user := range users {
		id := uuid.New()
		ids[name] = id
		for _, sql := range append([]string{
			`insert into account.users (id, email, name) values ($1, $1::uuid || '@example.org', 'x')`,
		}, user.made...) {
			if _, err := owner.Exec(t.Context(), sql, id); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	must(t, errOf(postgres.Migrate(t.Context(), credential.Secret(database.Owner))))
	for name, user := range users {
		var by string
		err := owner.QueryRow(t.Context(), `select coalesce(email_proven_by, '') from account.users where id = $1
			and (email_proven_at is null) = (email_proven_by is null)`, ids[name]).Scan(&by)
		if err != nil || by != user.by {
			t.Errorf("%s: proven by %q, want %q: %v", name, by, user.by, err)
		}
	}
}

// spellings are addresses as earlier releases stored them, each with what the same person types elsewhere.
var spellings = map[string][]string{
	"ada@xn--mnchen-3ya.example":    {"ada@münchen.example", "Ada@MU\u0308NCHEN.example", "ada@xn--mnchen-3ya.example"},
	"bob@zürich.example":            {"bob@xn--zrich-kva.example", "bob@zu\u0308rich.example"},
	"jose\u0301@example.org":        {"jos\u00e9@example.org", "JOSE\u0301@example.org"},
	"ren\u00e9@example.org":         {"rene\u0301@EXAMPLE.org", "\u202aren\u00e9@example.org\u202c"},
	"zoe\u0308@xn--kln-sna.example": {"zo\u00eb@k\u00f6ln.example"},
}

func TestUsers_OfEarlierReleasesAreFoundInAnySpelling(t *testing.T) {
	m := ownMemberTest(t)
	for stored, typed := range spellings {
		id := m.fixture.User(stored)
		for _, text := range typed {
			if user, _, found, err := m.UserByEmail(t.Context(), text); user.ID != id || !found || err != nil {
				t.Errorf("%+q does not find %+q: %v", text, stored, err)
			}
			hash := credential.Hash(stored + text)
			event := audit.Event{Actor: "anonymous"}
			to, made, err := m.BeginReset(t.Context(), text, hash, time.Now().Add(time.Hour), event)
			if to.ID != id || to.Email != stored || err != nil {
				t.Errorf("a link for %+q is made for %+q: %v, %v", text, to.Email, made, err)
			}
			id := uuid.New()
			err = m.AddUser(t.Context(), id, membershipEmail(t, text), "Second", byOperator(audit.UserAdded, id))
			wantErr(t, fmt.Sprintf("%+q gets a second account beside %+q", text, stored), admin.ErrEmailTaken, err)
		}
	}
	if user, _, found, _ := m.UserByEmail(t.Context(), "ada@munchen.example"); found {
		t.Errorf("another domain finds %s", user.Email)
	}
}

func membershipEmail(t *testing.T, text string) string {
	t.Helper()
	email, err := membership.ParseEmail(text)
	must(t, err)
	return email
}

func TestInvitations_AreForAddressInAnySpelling(t *testing.T) {
	m := ownMemberTest(t)
	inviter := m.person(manages...)
	for stored, typed := range spellings {
		id := m.fixture.User(stored)
		offer := m.offer(m.invited(inviter, typed[0]))
		if !offer.HasAccount {
			t.Errorf("an invitation of %+q does not know the account of %+q", typed[0], stored)
		}
		_, err := m.AcceptAsNewUser(t.Context(), offer, "Second", "", "r")
		wantErr(t, fmt.Sprintf("%+q gets a second account beside %+q", typed[0], stored), membership.ErrAccountExists,
			err)
		wantErr(t, fmt.Sprintf("%+q cannot accept an invitation of %+q", stored, typed[0]), nil, m.accept(offer, id))
		wantErr(t, "a member is invited in another spelling", membership.ErrMember,
			m.invites(inviter, typed[len(typed)-1]))
	}
}

// `migrate --finish` rewrites the addresses that are not canonical, and leaves those that another user has to the
// operator, and those with invisible characters: without them, an address may be another mailbox.
func TestFinishUpgrade_RespellsAddressesAndMergesNobody(t *testing.T) {
	m := ownMemberTest(t)
	ids := map[string]uuid.UUID{}
	for stored := range spellings {
		ids[stored] = m.fixture.User(stored)
	}
	unseen := map[string]uuid.UUID{}
	for _, stored := range []string{
		"ad\u200ba@example.org", "b\u00adob@example.org", "\u202aeve@example.org", "zo\u200de@example.org",
	} {
		unseen[stored] = m.fixture.User(stored)
	}
	ours, theirs := m.fixture.User("eve@xn--bcher-kva.example"), m.fixture.User("eve@bücher.example")
	owner := credential.Secret(m.fixture.Owner.Config().ConnString())
	for range 2 { // it is safe to repeat
		if left, err := postgres.FinishUpgrade(t.Context(), owner); left != 1+len(unseen) || err != nil {
			t.Fatalf("%d are left: %v", left, err)
		}
	}
	for stored, typed := range spellings {
		user, _, _, err := m.UserByID(t.Context(), ids[stored])
		if want := membershipEmail(t, typed[0]); user.Email != want || err != nil {
			t.Errorf("%+q is %+q now, want %+q: %v", stored, user.Email, want, err)
		}
	}
	left := maps.Clone(unseen)
	left["eve@xn--bcher-kva.example"], left["eve@bücher.example"] = ours, theirs
	listed, err := m.DuplicateUsers(t.Context())
	if err != nil || len(listed) != len(left) {
		t.Fatalf("%+v: %v", listed, err)
	}
	for _, d := range listed {
		if left[d.Email] != d.ID || (d.ID == ours || d.ID == theirs) && d.Address != "eve@bücher.example" {
			t.Errorf("%+q is listed as %+v", d.Email, d)
		}
	}
	for stored, id := range left { // each still signs in with the spelling that is stored
		if user, _, _, err := m.UserByEmail(t.Context(), stored); user.ID != id || user.Email != stored || err != nil {
			t.Errorf("%+q finds another user, %+q: %v", stored, user.Email, err)
		}
	}
	must(t, errOf(m.DeleteUser(t.Context(), theirs, byOperator(audit.UserDeleted, theirs))))
	if left, err := postgres.FinishUpgrade(t.Context(), owner); left != len(unseen) || err != nil {
		t.Errorf("%d are left: %v", left, err)
	}
}

// The hash of a password that an earlier release stored for its very text is replaced at the next sign-in.
func TestRenewHash_ReplacesOnlyHashThatWasRead(t *testing.T) {
	m := newMemberTest(t)
	id := m.fixture.User(uuid.NewString() + "@example.org")
	hashes := make([]credential.Secret, 3)
	for i := range hashes {
		hash, err := session.HashPassword("a password", session.LowestCost())
		must(t, err)
		hashes[i] = hash
	}
	m.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hashes[0].Reveal())
	if renewed, err := m.RenewHash(t.Context(), id, hashes[1], hashes[2]); renewed || err != nil {
		t.Errorf("another hash was replaced: %v", err)
	}
	if renewed, err := m.RenewHash(t.Context(), id, hashes[0], hashes[2]); !renewed || err != nil {
		t.Errorf("the hash was not replaced: %v", err)
	}
}
