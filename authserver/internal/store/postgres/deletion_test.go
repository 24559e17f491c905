package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// operator is the authorization of an operator's command.
var operator = &audit.Authorization{Operator: true}

func byOperator(action audit.Action, user uuid.UUID) audit.Event {
	return audit.ByOperator().Event(action, "user:"+user.String(), nil, nil)
}

// deletion returns the event of a user who deletes their own account.
func deletion(user uuid.UUID) audit.Event {
	return audit.Event{
		UserID:        &user,
		Actor:         "user:" + user.String(),
		Action:        audit.UserDeleted,
		Subject:       "user:" + user.String(),
		Authorization: &audit.Authorization{UserID: user},
	}
}

// rows returns the tables of the schema whose column of this name and type has the value, with the columns' names.
func (m *memberTest) rows(dataType, value string) (found []string) {
	m.Helper()
	for _, name := range m.texts(`select table_name || '.' || column_name from information_schema.columns
		where table_schema = 'account' and data_type = $1 and table_name not like 'goose%'`, dataType) {
		table, column, _ := strings.Cut(name, ".")
		if m.count(`select count(*) from account.`+table+` where `+column+`::text ilike '%' || $1 || '%'`, value) > 0 {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// TestP1_DeletedUserHasNoNameAndNoAccess fills every table that refers to a user.
func TestP1_DeletedUserHasNoNameAndNoAccess(t *testing.T) {
	m := ownMemberTest(t)
	other := m.person(manages...)
	leaver := m.person(manages...)
	user := leaver.UserID
	email := m.read(`select email from account.users where id = $1`, user)
	m.fixture.Exec(`update account.users set name = 'Zora Unforgettable', password_hash = 'x' where id = $1`, user)
	second := m.fixture.Workspace("Second")
	m.fixture.Join(second, user, perm.ProgrammesRead)
	m.fixture.Exec(`update account.oauth_clients set created_by = $1`, user)
	m.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
		ends_at) select gen_random_uuid(), kind, id, $1, $2, '{}', 'r', s, now() + interval '1 day'
		from account.oauth_clients, unnest(array['active', 'pending']) s`, user, m.workspaceID)
	m.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
		expires_at) select gen_random_uuid(), sha256(w::text::bytea), $1, w, 'a', '{}', now() + interval '1 day'
		from unnest($2::uuid[]) w`, user, []uuid.UUID{m.workspaceID, second})
	m.fixture.Exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
		values (gen_random_uuid(), $1, now() + interval '1 hour', 'password', '192.0.2.1', 'x')`, user)
	m.fixture.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
		transports, backup_eligible, backed_up) values (gen_random_uuid(), $1, 'Zora', 'x', 'x', 0, 'x', '{}', false,
		false)`, user)
	m.fixture.Exec(`insert into account.identities (issuer, subject, user_id) values ('i', 's', $1)`, user)
	m.fixture.Exec(`insert into account.authenticators (user_id, secret, last_step) values ($1, 'x', 0)`, user)
	m.fixture.Exec(`insert into account.recovery_codes (user_id, code_hash) values ($1, sha256('x'))`, user)
	m.fixture.Exec(`insert into account.password_resets (token_hash, user_id, expires_at)
		values (sha256('x'), $1, now() + interval '1 hour')`, user)
	m.fixture.Exec(`insert into account.unwanted_mails values ($1, 'token_expiring')`, user)
	m.fixture.Exec(`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
		values ($1, $2, '{}', '', true)`, user, m.workspaceID)
	m.fixture.Exec(`insert into account.credential_networks (tenant_id, credential_id, network, kind, user_id,
		first_used_at, last_used_at) values ($2, gen_random_uuid(), '203.0.113.0/24', 'connection', $1, now(), now())`,
		user, m.workspaceID)
	m.fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests)
		select t, gen_random_uuid(), now(), 'readMe', 'connection', $1, 1 from unnest($2::uuid[]) t`, user,
		[]uuid.UUID{m.workspaceID, second})
	must(t, m.invites(leaver, "sam@example.org"))
	elsewhere := *m
	elsewhere.workspaceID = m.fixture.Workspace("Third")
	inviter := elsewhere.person(manages...)
	must(t, m.invites(inviter, email))
	summary, err := m.DeletionSummary(t.Context(), user)
	if err != nil || len(summary.Workspaces) != 2 || summary.Connections != 1 || summary.Tokens != 2 ||
		summary.SignIns != 1 || summary.SignInMethods != 3 || summary.Invitations != 1 || summary.Applications != 1 ||
		len(summary.Unmanaged()) != 0 {
		t.Errorf("%+v %v", summary, err)
	}

	ended, err := m.DeleteUser(t.Context(), user, deletion(user))
	if err != nil || len(ended.Grants) != 2 {
		t.Fatalf("%+v %v", ended, err)
	}
	for _, dataType := range []string{"text", "jsonb", "ARRAY"} {
		for _, value := range []string{"Zora", email} {
			if found := m.rows(dataType, value); len(found) > 0 {
				t.Errorf("%q is still in %v", value, found)
			}
		}
	}
	listed := usage.Filter{From: time.Now().Add(-time.Hour), To: time.Now().Add(24 * time.Hour)}
	rows, err := m.Usage(t.Context(), second, listed)
	busiest, otherErr := m.BusiestCredentials(t.Context(), second, nil, listed.From, 10)
	if len(rows)+len(busiest.Credentials) > 0 || errors.Join(err, otherErr) != nil {
		t.Errorf("usage of the user is listed: %v %v %v %v", rows, busiest, err, otherErr)
	}
	deletes(t, m.Retention(keepAll()), "usage of deleted users", 2)
	// These keep the identifier.
	want := []string{
		"audit_events.user_id", "audit_events_earlier.user_id", "events.", "grants.user_id", "invitations.invited_by",
		"invitation_messages.inviter_id", // for 24 hours
		"oauth_clients.created_by",
		"personal_access_tokens.user_id", "users.id",
	}
	for _, column := range m.rows("uuid", user.String()) {
		if !slices.Contains(want, column) {
			t.Errorf("%s still refers to the user", column)
		}
	}
	m.wantCount(0, "grants, tokens or invitations are left",
		`select (select count(*) from account.grants where user_id = $1 and state <> 'revoked') +
		(select count(*) from account.personal_access_tokens where user_id = $1 and revoked_at is null) +
		(select count(*) from account.invitations where invited_by = $1 and ended_at is null)`, user)
	for action, want := range map[string]int{
		audit.UserDeleted: 1, audit.MemberLeft: 2, audit.GrantRevoked: 2, audit.TokenRevoked: 2,
		audit.InvitationDeclined: 1,
	} {
		m.wantCount(want, "events", `select count(*) from account.audit_events where user_id = $1 and action = $2`,
			user, action)
	}
	entries, err := m.EventsOfWorkspace(t.Context(), second, audit.Search{}, audit.Cursor{}, 1)
	if err != nil || len(entries) != 1 || entries[0].ActorName != "Deleted user" || *entries[0].UserID != user {
		t.Errorf("%+v %v", entries, err)
	}
	m.refusesDeleted(user, email)
	if m.managers() != 1 {
		t.Errorf("%d managers with %s", m.managers(), other.UserID)
	}
}

// refusesDeleted checks that no command and no sign-in restores a deleted user.
func (m *memberTest) refusesDeleted(user uuid.UUID, email string) {
	m.Helper()
	ctx := m.Context()
	event := byOperator(audit.UserEnabled, user)
	wantErr(m, "enable", admin.ErrNoUser, errOf(m.SetDisabled(ctx, user, false, event)))
	wantErr(m, "set a password", admin.ErrNoUser, errOf(m.SetPassword(ctx, user, "x", false, event)))
	wantErr(m, "make a link", admin.ErrNoUser, m.AddReset(ctx, user, hash(7), time.Now().Add(time.Hour), event))
	wantErr(m, "add a member", admin.ErrNoUser, m.AddMember(ctx, m.workspaceID, user, nil, event))
	wantErr(m, "delete again", admin.ErrNoUser, errOf(m.DeleteUser(ctx, user, event)))
	if linked, _, err := m.LinkIdentity(ctx, user, email, "i", "s", true, event); linked || err != nil {
		m.Errorf("an account was linked: %v", err)
	}
	for _, address := range []string{email, user.String() + "@deleted.invalid"} {
		if _, _, exists, err := m.UserByEmail(ctx, address); exists || err != nil {
			m.Errorf("%s is found: %v", address, err)
		}
	}
	m.fixture.User(email) // the address can be used again
	const enable = `update account.users set disabled_at = null where id = $1`
	if _, err := m.fixture.Owner.Exec(ctx, enable, user); err == nil {
		m.Error("a program of an earlier release can enable the user")
	}
}

// A write that was authorized before a deletion waits for the deletion and is then refused.
func TestP1_NothingIsWrittenAfterDeletion(t *testing.T) {
	m := ownMemberTest(t)
	const password = "a hash"
	for name, write := range map[string]func(user uuid.UUID) error{
		"sign in": func(user uuid.UUID) error {
			proof := session.Proof{Method: session.Password, PasswordHash: password}
			by := session.SignIn{ID: uuid.New(), UserID: user, Method: proof.Method, Proof: proof}
			by.Expires = time.Now().Add(time.Hour)
			return m.BeginSignIn(t.Context(), by, deletion(user))
		},
		"create a token": func(user uuid.UUID) error { return m.createToken(user) },
		"consent": func(user uuid.UUID) error {
			g := m.grant
			g.ID, g.UserID, g.WorkspaceID = uuid.New(), user, m.workspaceID
			g.SignInID = uuid.MustParse(m.read(`select id::text from account.sign_ins where user_id = $1`, user))
			_, err := m.Open(t.Context(), g, 1)
			return err
		},
		"link an account": func(user uuid.UUID) error {
			address := m.read(`select email from account.users where id = $1`, user)
			_, _, err := m.LinkIdentity(t.Context(), user, address, "i", user.String(), true, deletion(user))
			return err
		},
		"join": func(user uuid.UUID) error {
			held := perm.NewSet(perm.ProgrammesRead)
			return m.AddMember(t.Context(), m.fixture.WorkspaceID, user, held, byOperator(audit.MemberAdded, user))
		},
	} {
		user := m.person(perm.ProgrammesRead).UserID
		m.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, user, password)
		m.fixture.Exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
			values ($1, $2, now() + interval '1 hour', 'password', '192.0.2.1', 'x')`, uuid.New(), user)
		m.fixture.Exec(`insert into account.unwanted_mails values ($1, 'token_expiring')`, user)
		m.fixture.Exec(`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
		values ($1, $2, '{}', '', true)`, user, m.workspaceID)
		err := m.whileDeleting(user, func() error { return write(user) })
		if n := m.access(user); n != 0 {
			t.Errorf("%s (%v): %d rows give access", name, err, n)
		}
	}
}

// whileDeleting stops a deletion before its last statements, runs write until it ends or waits, and then continues
// both. It returns the error of write.
func (m *memberTest) whileDeleting(user uuid.UUID, write func() error) error {
	m.Helper()
	stop := m.lock(`select from account.unwanted_mails where user_id = $1 for update`, user)
	waiting := func() int { return m.count(`select count(distinct pid) from ` + testkit.Locks + ` where not granted`) }
	deleted, written := make(chan error, 1), make(chan error, 1)
	go func() { _, err := m.DeleteUser(m.Context(), user, deletion(user)); deleted <- err }()
	await.True(m, "the deletion waits", func() bool { return waiting() == 1 })
	go func() { written <- write() }()
	await.True(m, "the write ends or waits", func() bool { return waiting() == 2 || len(written) == 1 })
	must(m, stop.Commit(m.Context()))
	wantErr(m, "deletion", nil, <-deleted)
	return <-written
}

func (m *memberTest) createToken(user uuid.UUID) error {
	event := deletion(user)
	event.Authorization.WorkspaceID = m.workspaceID
	_, err := m.SaveToken(m.Context(), pat.Token{
		ID:          uuid.Must(uuid.NewV7()),
		UserID:      user,
		WorkspaceID: m.workspaceID,
		Name:        "a token",
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Expires:     time.Now().Add(time.Hour),
	}, credential.Hash(uuid.NewString()), event)
	return err
}

// access counts what a user could use.
func (m *memberTest) access(user uuid.UUID) int {
	m.Helper()
	return m.count(`select
  (select count(*) from account.sign_ins where user_id = $1 and ended_at is null) +
  (select count(*) from account.personal_access_tokens where user_id = $1 and revoked_at is null) +
  (select count(*) from account.grants where user_id = $1 and state <> 'revoked') +
  (select count(*) from account.identities where user_id = $1) +
  (select count(*) from account.memberships where user_id = $1)`, user)
}

// TestP2_LastHolderCannotDeleteOwnAccount also deletes two managers at the same time, of whom one stays.
func TestP2_LastHolderCannotDeleteOwnAccount(t *testing.T) {
	m := newMemberTest(t)
	for range 5 {
		m.fixture.Exec(`delete from account.memberships where tenant_id = $1`, m.workspaceID)
		a, b := m.person(manages...).UserID, m.person(manages...).UserID
		remove := func(user uuid.UUID) func() error {
			return func() error { return errOf(m.DeleteUser(t.Context(), user, deletion(user))) }
		}
		errs := at(remove(a), remove(b))
		if m.managers() != 1 || (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%d managers: %v", m.managers(), errs)
		}
		wantErr(t, "both leave", membership.ErrLastHolder, errors.Join(errs...))
		stays := a
		if errs[0] == nil {
			stays = b
		}
		ended, err := m.DeleteUser(t.Context(), stays, byOperator(audit.UserDeleted, stays))
		if err != nil || len(ended.Unmanaged()) != 1 || ended.Unmanaged()[0].ID != m.workspaceID {
			t.Errorf("an operator: %+v %v", ended.Summary, err)
		}
	}
}

// The invitations of others to an address do not end with an account that another person may have made for it.
func TestProven_DeletedUnprovenAccountDeclinesNothing(t *testing.T) {
	m := newMemberTest(t)
	inviter := m.person(manages...)
	for proven, left := range map[bool]int{true: 0, false: 1} {
		user := m.fixture.User(uuid.NewString() + "@example.org")
		m.fixture.Exec(`update account.users set email_proven_at = case when $2 then now() end
			where id = $1`, user, proven)
		email := m.read(`select email from account.users where id = $1`, user)
		must(t, m.invites(inviter, email))
		must(t, errOf(m.DeleteUser(t.Context(), user, byOperator(audit.UserDeleted, user))))
		m.wantCount(left, fmt.Sprintf("invitations are left, proven %t", proven),
			`select count(*) from account.invitations where email = $1`, email)
	}
}

// What changes the networks of a credential locks its first one before the others, as account.note_networks does, so
// that it never waits for a process that waits for it.
func TestNetworks_FirstIsLockedBeforeOthers(t *testing.T) {
	m := ownMemberTest(t)
	for name, change := range map[string]func(user uuid.UUID) error{
		"delete the account": func(user uuid.UUID) error {
			return errOf(m.DeleteUser(t.Context(), user, deletion(user)))
		},
		"queue mails": func(uuid.UUID) error { return m.QueueNetworkMails(t.Context()) },
	} {
		user := m.person(perm.ProgrammesRead).UserID
		must(t, m.createToken(user))
		// The first one is the last in the table and in its indexes.
		m.fixture.Exec(`insert into account.credential_networks
			(tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at, is_first, mail_due)
			select p.tenant_id, p.id, n.network, 'personal_access_token', p.user_id, now(), now(), n.last, not n.last
			from account.personal_access_tokens p,
				(values (cidr '10.0.0.0/24', false), ('203.0.113.0/24', true)) n (network, last)
			where p.user_id = $1`, user)
		first := m.lock(`select from account.credential_networks where user_id = $1 and is_first for update`, user)
		changed := make(chan error, 1)
		go func() { changed <- change(user) }()
		m.awaitBlocked(first, 1)
		const all = `select from account.credential_networks where user_id = $1 for update nowait`
		wantErr(m, name+" locks another one", nil, errOf(first.Exec(t.Context(), all, user)))
		must(t, first.Rollback(t.Context()))
		wantErr(m, name, nil, <-changed)
	}
}
