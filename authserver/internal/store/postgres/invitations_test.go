package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// The key of an invitation contains its workspace, so an answer changes only the invitation of that workspace.
func TestInvitations_AnswerNamesWorkspace(t *testing.T) {
	m := newMemberTest(t)
	address := anAddress("sam")
	inviter, sam := m.person(manages...), m.fixture.User(address)
	offer := m.offer(m.invited(inviter, address))
	other := m.fixture.Workspace("Riverside")
	m.fixture.Exec(`
		insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash, expires_at)
		select id, $2, email, permissions, invited_by, sha256(token_hash), expires_at
		from account.invitations where id = $1`, offer.ID, other)
	must(t, m.Decline(t.Context(), offer, &sam, byUser(sam)))
	const open = `select count(*) from account.invitations where tenant_id = $1 and ended_at is null`
	m.wantCount(1, "invitations to another workspace are open", open, other)
	m.wantCount(0, "invitations to the workspace are open", open, m.workspaceID)
}

// sentBefore inserts n messages that were sent some time ago.
func (m *memberTest) sentBefore(n int, workspaceID, inviter uuid.UUID, email string, ago time.Duration) {
	m.Helper()
	m.fixture.Exec(`insert into account.invitation_messages (tenant_id, inviter_id, email_hash, sent_at)
		select $1, $2, $3, now() - $4::interval from generate_series(1, $5)`,
		workspaceID, inviter, credential.Hash(email), ago, n)
}

func (m *memberTest) invites(by membership.Actor, email string) error {
	_, err := m.Invite(m.Context(), by, email, []string{"programmes:read:programmes"})
	return err
}

// wantsLimit fails unless err reports that the limit was reached, and how long to wait.
func wantsLimit(t *testing.T, what string, err error, limit membership.Limit, wait time.Duration) {
	t.Helper()
	reached, ok := errors.AsType[*membership.LimitError](err)
	if !ok || reached.Name != limit.Name || (reached.Wait-wait).Abs() > time.Minute {
		t.Errorf("%s: %v, want %s with %v to wait", what, err, limit.Name, wait)
	}
}

func TestM5_InvitationsAreLimited(t *testing.T) {
	m := ownMemberTest(t)
	other, inviter := m.fixture.Workspace("Elsewhere"), uuid.New()
	const hour = time.Hour

	busy := m.person(manages...)
	m.sentBefore(membership.PerInviter.Most-1, other, busy.UserID, "x@example.org", hour)
	wantErr(t, "the last one of an inviter", nil, m.invites(busy, "first@example.org"))
	wantsLimit(t, "inviter", m.invites(busy, "second@example.org"), membership.PerInviter, 23*hour)
	wantErr(t, "another inviter", nil, m.invites(m.person(manages...), "second@example.org"))

	sam := m.person(manages...)
	for i := range membership.PerAddressOfInviter.Most {
		if i%2 == 0 {
			must(t, m.invites(sam, "sam@example.org"))
			continue
		}
		must(t, m.renews(sam, "sam@example.org"))
		if i == 3 { // messages count whose invitation is withdrawn
			id, _ := m.open("sam@example.org")
			must(t, m.Withdraw(t.Context(), sam, id))
		}
	}
	wantsLimit(t, "address", m.invites(sam, "SAM@example.org"), membership.PerAddressOfInviter, 24*hour)
	wantErr(t, "one user exhausts the limit of an address for another", nil,
		m.invites(m.person(manages...), "sam@example.org"))
	before := m.count(`select count(*) from account.audit_events`)
	wantsLimit(t, "renewed", m.renews(sam, "sam@example.org"), membership.PerAddressOfInviter, 24*hour)
	if m.count(`select count(*) from account.audit_events`) != before {
		t.Error("a refused invitation is recorded")
	}

	for i := range membership.PerAddressInWorkspace.Most { // twice as many messages as users
		m.sentBefore(2, m.workspaceID, uuid.New(), "tom@example.org", time.Duration(i+4)*hour)
	}
	wantsLimit(t, "users in the workspace", m.invites(sam, "tom@example.org"), membership.PerAddressInWorkspace,
		16*hour)
	m.fixture.Exec(`delete from account.invitation_messages where sent_at < now() - interval '7 hours 30 minutes'`)
	wantErr(t, "the last user of the workspace", nil, m.invites(sam, "tom@example.org"))

	for range membership.PerAddress.Most {
		m.sentBefore(1, other, uuid.New(), "eve@example.org", 2*hour)
	}
	wantErr(t, "other workspaces keep this one from inviting", nil, m.invites(sam, "eve@example.org"))
	wantsLimit(t, "address in all workspaces", m.invites(sam, "eve@example.org"), membership.PerAddress, 22*hour)

	m.sentBefore(membership.PerWorkspace.Most, m.workspaceID, inviter, "y@example.org", 3*hour)
	wantsLimit(t, "workspace", m.invites(sam, "last@example.org"), membership.PerWorkspace, 21*hour)
	m.fixture.Exec(`update account.invitation_messages set sent_at = sent_at - interval '1 day'`)
	wantErr(t, "a day later", nil, m.invites(sam, "sam@example.org"))
	for range 4 {
		_ = m.invites(sam, fmt.Sprintf("%s@example.org", uuid.NewString()))
	}
	m.wantCount(0, "old messages are stored", `select count(*) from account.invitation_messages
		where sent_at < now() - interval '1 day'`)
}

// open returns the open invitation of an address, and when it expires.
func (m *memberTest) open(email string) (id uuid.UUID, expires time.Time) {
	m.Helper()
	err := m.fixture.Owner.QueryRow(m.Context(), `select id, expires_at from account.invitations
		where tenant_id = $1 and email = $2 and ended_at is null`, m.workspaceID, email).Scan(&id, &expires)
	must(m, err)
	return id, expires
}

// renews sends the open invitation of an address again.
func (m *memberTest) renews(by membership.Actor, email string) error {
	id, expires := m.open(email)
	_, err := m.Renew(m.Context(), by, id, expires)
	return err
}

func TestM5_ConcurrentWorkspacesShareLimitOfAddress(t *testing.T) {
	m := ownMemberTest(t)
	actors := make([]membership.Actor, 6)
	for i := range actors {
		actors[i] = m.person(manages...)
		actors[i].WorkspaceID = m.fixture.Workspace(fmt.Sprintf("Workspace %d", i))
		m.fixture.Join(actors[i].WorkspaceID, actors[i].UserID, manages...)
		m.sentBefore(1, actors[i].WorkspaceID, uuid.New(), "sam@example.org", time.Minute)
	}
	for range membership.PerAddress.Most - len(actors) - 2 {
		m.sentBefore(1, uuid.New(), uuid.New(), "sam@example.org", time.Minute)
	}
	var functions []func() error
	for _, by := range actors {
		functions = append(functions, func() error { return m.invites(by, "sam@example.org") })
	}
	sent := 0
	for _, err := range at(functions...) {
		if err == nil {
			sent++
		} else {
			wantsLimit(t, "refused", err, membership.PerAddress, 24*time.Hour-time.Minute)
		}
	}
	if sent != 2 {
		t.Errorf("%d messages, want 2", sent)
	}
}

// A transaction that Postgres aborts for a deadlock is repeated: each try begins with what the caller saw.
func TestInvitations_AreSavedAndRenewedInSecondTry(t *testing.T) {
	m := ownMemberTest(t)
	by := m.person(manages...)
	m.fixture.Exec(`create sequence account.tries`)
	m.fixture.Exec(`create function account.fail_odd_tries() returns trigger language plpgsql security definer as $$
		begin
			if nextval('account.tries') % 2 = 1 then
				raise deadlock_detected;
			end if;
			return new;
		end $$`)
	m.fixture.Exec(`create trigger fail before insert on account.invitation_messages
		for each row execute function account.fail_odd_tries()`)
	wantErr(t, "invited", nil, m.invites(by, "sam@example.org"))
	_, seen := m.open("sam@example.org")
	wantErr(t, "renewed", nil, m.renews(by, "sam@example.org"))
	if _, expires := m.open("sam@example.org"); !expires.After(seen) {
		t.Errorf("the invitation still ends at %s", seen)
	}
	if tries := m.count(`select last_value from account.tries`); tries != 4 {
		t.Errorf("%d tries, want 4", tries)
	}
}
