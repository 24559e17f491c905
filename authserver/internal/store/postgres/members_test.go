package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

var manages = []perm.Permission{perm.AccountWriteMembers, perm.ProgrammesRead}

// A memberTest is a workspace whose members are managed through membership.Service.
type memberTest struct {
	*storeTest
	*membership.Service
	workspaceID uuid.UUID
}

func newMemberTest(t *testing.T) *memberTest { return memberTestOf(newStoreTest(t)) }

// ownMemberTest is newMemberTest with a database of its own.
func ownMemberTest(t *testing.T) *memberTest { return memberTestOf(ownStoreTest(t)) }

func memberTestOf(l *storeTest) *memberTest {
	return &memberTest{
		storeTest:   l,
		workspaceID: l.fixture.Workspace("Hillside Youth Club"),
		Service: &membership.Service{
			Store:               l.Store,
			PropagateRevocation: func(context.Context, []useraccount.EndedGrant) {},
			AppURL:              "https://app.example.org",
			Random:              rand.Reader,
		},
	}
}

// person creates a member with these permissions.
func (m *memberTest) person(permissions ...perm.Permission) membership.Actor {
	m.Helper()
	id := m.fixture.User("person-" + uuid.NewString() + "@example.org")
	m.fixture.Join(m.workspaceID, id, permissions...)
	return m.actor(id, permissions...)
}

func (m *memberTest) actor(id uuid.UUID, permissions ...perm.Permission) membership.Actor {
	return membership.Actor{
		UserID:        id,
		WorkspaceID:   m.workspaceID,
		Permissions:   perm.NewSet(permissions...),
		RequestID:     "r-1",
		Authorization: audit.Authorization{UserID: id},
	}
}

func (m *memberTest) managers() int {
	m.Helper()
	return m.count(`select count(*) from account.memberships where tenant_id = $1
		and 'account:write:members' = any(permissions)`, m.workspaceID)
}

// anAddress returns an address that no other test uses. It has capital letters if name has.
func anAddress(name string) string { return name + "-" + uuid.NewString() + "@example.org" }

// at runs the functions at the same time and returns their errors.
func at(functions ...func() error) []error {
	errs, start := make([]error, len(functions)), make(chan struct{})
	var group sync.WaitGroup
	for i, do := range functions {
		group.Go(func() {
			<-start
			errs[i] = do()
		})
	}
	close(start)
	group.Wait()
	return errs
}

// Two administrators who end each other's or their own membership at the same time leave one (M2).
func TestM2_ConcurrentRemovalsLeaveOneManager(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	lowered := perm.NewSet(perm.ProgrammesRead)
	remove := func(by, user membership.Actor) error { _, err := m.Remove(m.Context(), by, user.UserID); return err }
	leave := func(by, _ membership.Actor) error { _, err := m.Leave(m.Context(), by); return err }
	lower := func(by, user membership.Actor) error {
		_, err := m.ChangePermissions(m.Context(), by, user.UserID, lowered, nil)
		return err
	}
	lowerSelf := func(by, _ membership.Actor) error { return lower(by, by) }
	for name, end := range map[string]func(by, user membership.Actor) error{
		"remove each other": remove, "leave": leave, "lower each other": lower, "lower themselves": lowerSelf,
	} {
		for range 5 {
			m.fixture.Exec(`delete from account.memberships where tenant_id = $1`, m.workspaceID)
			a, b := m.person(manages...), m.person(manages...)
			errs := at(func() error { return end(a, b) }, func() error { return end(b, a) })
			failed := 0
			for _, err := range errs {
				if err != nil {
					failed++
				}
				if err != nil && !errors.Is(err, membership.ErrLastHolder) && !errors.Is(err, audit.ErrNotAuthorized) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if n := m.managers(); n != 1 || failed != 1 {
				t.Fatalf("%s: %d managers remain, errors %v", name, n, errs)
			}
		}
	}
}

// A manager who strips or removes all others cannot strip the last holder of a permission, even with two requests at
// the same time (M2).
func TestM2_LastHolderOfEachPermissionOfAccountStays(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	for _, p := range []perm.Permission{perm.AccountAPIAccess, perm.AccountReadMembers} {
		for name, end := range map[string]func(by, user membership.Actor) error{
			"remove": func(by, user membership.Actor) error {
				_, err := m.Remove(m.Context(), by, user.UserID)
				return err
			},
			"lower": func(by, user membership.Actor) error {
				_, err := m.ChangePermissions(m.Context(), by, user.UserID, perm.NewSet(perm.ProgrammesRead), nil)
				return err
			},
			"leave": func(_, user membership.Actor) error { _, err := m.Leave(m.Context(), user); return err },
			"delete": func(_, user membership.Actor) error {
				_, err := m.DeleteUser(m.Context(), user.UserID, deletion(user.UserID))
				return err
			},
		} {
			m.fixture.Exec(`delete from account.memberships where tenant_id = $1`, m.workspaceID)
			by, a, b := m.person(manages...), m.person(p, perm.ProgrammesRead), m.person(p)
			errs := at(func() error { return end(by, a) }, func() error { return end(by, b) })
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), membership.ErrLastHolder) {
				t.Errorf("%s the holders of %s: %v", name, p, errs)
			}
			disabled := m.person(p)
			m.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.UserID)
			if err := end(by, disabled); name != "leave" && name != "delete" && err != nil {
				t.Errorf("%s a disabled holder of %s: %v", name, p, err)
			}
		}
	}
}

// A disabled administrator does not count (M2).
func TestM2_LastEnabledManagerStays(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	a, disabled := m.person(manages...), m.person(manages...)
	m.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.UserID)
	if _, err := m.Leave(m.Context(), a); !errors.Is(err, membership.ErrLastHolder) {
		t.Errorf("leave: %v", err)
	}
	if _, err := m.Remove(m.Context(), a, disabled.UserID); err != nil {
		t.Errorf("remove the disabled one: %v", err)
	}
}

func TestM1_NobodyGivesWhatTheyDoNotHold(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	a, b := m.person(manages...), m.person(perm.ProgrammesRead, perm.ProgrammesWrite)
	var missing *membership.NotHeld
	wanted := perm.NewSet(perm.ProgrammesWrite, perm.EngageReadForms)
	_, err := m.ChangePermissions(m.Context(), a, b.UserID, wanted, nil)
	if !errors.As(err, &missing) || missing.Missing.Scope() != "engage:read:forms" {
		t.Errorf("%v", err)
	}
	// What the member holds already may stay, and may be taken away.
	for _, set := range []perm.Set{perm.NewSet(perm.ProgrammesWrite), perm.NewSet(perm.ProgrammesRead)} {
		if _, err := m.ChangePermissions(m.Context(), a, b.UserID, set, nil); err != nil {
			t.Errorf("%v: %v", set, err)
		}
	}
	if _, err := m.Invite(m.Context(), a, anAddress("sam"), []string{"engage:read:forms"}); !errors.As(err, &missing) {
		t.Errorf("invite: %v", err)
	}
	seen := perm.NewSet(perm.ProgrammesWrite)
	if _, err := m.ChangePermissions(m.Context(), a, b.UserID, seen, &seen); !errors.Is(err, membership.ErrChanged) {
		t.Errorf("with permissions that are no longer the member's: %v", err)
	}
	// A member who lost a permission after the caller was checked does not get it back by the change.
	_, err = m.storeTest.Store.ChangePermissions(m.Context(), membership.Change{
		WorkspaceID: m.workspaceID,
		UserID:      b.UserID,
		Permissions: perm.NewSet(perm.ProgrammesWrite),
	}, audit.Event{Authorization: &audit.Authorization{
		UserID:      a.UserID,
		WorkspaceID: m.workspaceID,
		Permissions: perm.NewSet(perm.AccountWriteMembers),
	}})
	if !errors.Is(err, membership.ErrChanged) {
		t.Errorf("a permission that the member lost since: %v", err)
	}
	// The permission ends between the check and the write.
	m.fixture.Exec(`update account.memberships set permissions = '{account:write:members}' where user_id = $1`,
		a.UserID)
	m.fixture.Exec(`update account.memberships set permissions = '{programmes:write:programmes}' where user_id = $1`,
		b.UserID)
	_, err = m.ChangePermissions(m.Context(), a, b.UserID, perm.NewSet(perm.ProgrammesRead), nil)
	if !errors.Is(err, audit.ErrNotAuthorized) {
		t.Errorf("a permission that was lost since: %v", err)
	}
	if _, err := m.Invite(m.Context(), a, anAddress("sam"), []string{"programmes:read:programmes"}); !errors.Is(err,
		audit.ErrNotAuthorized) {
		t.Errorf("an invitation with a permission that was lost since: %v", err)
	}
}

// A removal ends grants, tokens and sent invitations, and records each end (M3).
func TestM3_RemovalEndsWhatDependsOnMembership(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	m.workspaceID = m.fixture.WorkspaceID
	a := m.person(manages...)
	gone := m.actor(m.grant.UserID, manages...)
	m.fixture.Exec(`update account.memberships set permissions = $2 where user_id = $1`, gone.UserID,
		perm.NewSet(manages...).Strings())
	g := m.consented(m.fixture.Connector("https://api.example.org/v1", perm.ProgrammesRead), 0)
	m.fixture.Token(gone.UserID, perm.ProgrammesRead)
	sent := m.invited(gone, anAddress("sam"))
	removal, err := m.Remove(m.Context(), a, gone.UserID)
	if err != nil || len(removal.Grants) != 1 || removal.Grants[0].ID != g.ID || removal.Tokens != 1 {
		t.Fatalf("%+v %v", removal, err)
	}
	if n := m.count(`select count(*) from account.grants where id = $1 and state = 'revoked'
		and revoke_reason = $2`, g.ID, string(grant.MembershipOver)); n != 1 {
		t.Error("the grant is not revoked")
	}
	if _, err := m.Offer(m.Context(), sent); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("an invitation of the removed member: %v", err)
	}
	for action, want := range map[string]int{audit.MemberRemoved: 1, audit.GrantRevoked: 1, audit.TokenRevoked: 1} {
		if n := m.count(`select count(*) from account.audit_events where action = $1 and actor = $2`, action,
			"user:"+a.UserID.String()); n != want {
			t.Errorf("%d events %s", n, action)
		}
	}
	if _, err := m.Remove(m.Context(), a, gone.UserID); !errors.Is(err, membership.ErrNoMember) {
		t.Errorf("twice: %v", err)
	}
}

// invited returns the token of an invitation for reading programmes.
func (m *memberTest) invited(by membership.Actor, email string) credential.Secret {
	m.Helper()
	sent, err := m.Invite(m.Context(), by, email, []string{string(perm.ProgrammesRead)})
	if err != nil {
		m.Fatal(err)
	}
	return tokenOf(m.T, sent)
}

func tokenOf(t *testing.T, sent membership.Sent) credential.Secret {
	t.Helper()
	link, err := url.Parse(sent.Link.Reveal())
	if err != nil || !strings.HasPrefix(sent.Link.Reveal(), "https://app.example.org/invitation?token=alm_inv_") {
		t.Fatal("the link is not valid")
	}
	return credential.Secret(link.Query().Get("token"))
}

func (m *memberTest) offer(token credential.Secret) membership.Offer {
	m.Helper()
	o, err := m.Offer(m.Context(), token)
	if err != nil {
		m.Fatal(err)
	}
	return o
}

func (m *memberTest) accept(o membership.Offer, user uuid.UUID) error {
	return m.Accept(m.Context(), o, user, audit.Event{
		Actor:         "user:" + user.String(),
		Authorization: &audit.Authorization{UserID: user},
	})
}

// Only one of several concurrent requests accepts an invitation (M4).
func TestM4_ConcurrentAnswersHaveOneEffect(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	inviter := m.person(manages...)
	for i := range 5 {
		email := anAddress("sam")
		sam := m.fixture.User(email)
		o := m.offer(m.invited(inviter, email))
		races := map[int]func() error{
			0: func() error { return m.accept(o, sam) },
			1: func() error { return m.Withdraw(m.Context(), inviter, o.ID) },
			2: func() error {
				event := audit.Event{Actor: "user:" + sam.String(), Authorization: &audit.Authorization{UserID: sam}}
				return m.Decline(m.Context(), o, &sam, event)
			},
		}
		errs := at(func() error { return m.accept(o, sam) }, races[i%3])
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, membership.ErrNoInvitation) {
				t.Error(err)
			}
		}
		if won != 1 {
			t.Fatalf("%d of two answers had an effect: %v", won, errs)
		}
	}
	// Two people cannot both create an account for one invitation.
	fresh := anAddress("new")
	o := m.offer(m.invited(inviter, fresh))
	create := func() error {
		_, err := m.AcceptAsNewUser(m.Context(), o, "Sam Reed", "hash", "r-1")
		return err
	}
	errs := at(create, create)
	if (errs[0] == nil) == (errs[1] == nil) || m.count(`select count(*) from account.users
		where email = $1`, fresh) != 1 {
		t.Errorf("%v", errs)
	}
}

// An acceptance and the removal of the inviter at the same time end in one of two orders: joined before, or refused.
func TestM4_InviterMustStillBeAbleToInvite(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	admin := m.person(manages...)
	address := anAddress("sam")
	sam := m.fixture.User(address)
	for name, end := range map[string]string{
		"inviter lost the permission": `update account.memberships set permissions = '{account:write:members}'
			where user_id = $1`,
		"inviter cannot invite": `update account.memberships set permissions = '{programmes:read:programmes}'
			where user_id = $1`,
		"inviter left":        `delete from account.memberships where user_id = $1`,
		"inviter is disabled": `update account.users set disabled_at = now() where id = $1`,
	} {
		inviter := m.person(manages...)
		o := m.offer(m.invited(inviter, address))
		m.fixture.Exec(end, inviter.UserID)
		if err := m.accept(o, sam); !errors.Is(err, membership.ErrInviter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	inviter := m.person(manages...)
	o := m.offer(m.invited(inviter, address))
	errs := at(
		func() error { return m.accept(o, sam) },
		func() error { _, err := m.Remove(m.Context(), admin, inviter.UserID); return err },
	)
	joined := m.count(`select count(*) from account.memberships where user_id = $1`, sam) == 1
	if errs[1] != nil || joined != (errs[0] == nil) || (!joined && !errors.Is(errs[0], membership.ErrNoInvitation)) {
		t.Errorf("joined %v: %v", joined, errs)
	}
}

func TestM4_InvitationIsBoundToAddressTokenAndTime(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	inviter := m.person(manages...)
	address := anAddress("sam")
	sam, eve := m.fixture.User(address), m.fixture.User(anAddress("eve"))
	first := m.invited(inviter, strings.ToUpper(address))
	o := m.offer(first)
	if err := m.accept(o, eve); !errors.Is(err, membership.ErrOtherAddress) {
		t.Errorf("another user: %v", err)
	}
	event := audit.Event{Authorization: &audit.Authorization{UserID: eve}}
	if err := m.Decline(m.Context(), o, &eve, event); !errors.Is(err, membership.ErrOtherAddress) {
		t.Errorf("another user declines: %v", err)
	}
	mailed := o // the holder of a link that was not mailed must not learn that there is an account
	mailed.Mailed = true
	if err := m.Decline(m.Context(), mailed, nil, audit.Event{}); !errors.Is(err, membership.ErrAccountExists) {
		t.Errorf("a person who is not signed in declines: %v", err)
	}
	if _, err := m.AcceptAsNewUser(m.Context(), o, "Eve", "hash", ""); !errors.Is(err, membership.ErrAccountExists) {
		t.Errorf("a second account for the address: %v", err)
	}
	renewed, err := m.Renew(m.Context(), inviter, o.ID, o.Expires)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Offer(m.Context(), first); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("the link before the renewal: %v", err)
	}
	if err := m.accept(o, sam); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("a page that was opened before the renewal: %v", err)
	}
	o = m.offer(tokenOf(t, renewed))
	m.fixture.Exec(`update account.invitations set expires_at = now() where id = $1`, o.ID)
	if err := m.accept(o, sam); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("expired: %v", err)
	}
	second := m.invited(inviter, address)
	third := m.invited(inviter, address)
	if _, err := m.Offer(m.Context(), second); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("a replaced invitation: %v", err)
	}
	if err := m.accept(m.offer(third), sam); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Offer(m.Context(), third); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("after acceptance: %v", err)
	}
	if _, err := m.Invite(m.Context(), inviter, address, []string{"programmes:read:programmes"}); !errors.Is(
		err, membership.ErrMember) {
		t.Errorf("a member is invited: %v", err)
	}
	m.wantCount(1, "events of the acceptance",
		`select count(*) from account.audit_events where user_id = $1 and action = $2
		and detail ->> 'invited_by' = $3`, sam, audit.MemberAdded, inviter.UserID.String())
	if text := m.count(`select count(*) from account.invitations where token_hash::text like '%alm_inv%'`); text != 0 {
		t.Error("a token is stored")
	}
}
