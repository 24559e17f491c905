package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"slices"
	"strings"
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
	errs := make([]error, len(functions))
	concurrently(len(functions), func(i int) { errs[i] = functions[i]() })
	return errs
}

// succeeded returns how many calls succeeded, and requires the error want of the others.
func succeeded(t testing.TB, what string, want error, errs []error) (n int) {
	t.Helper()
	for _, err := range errs {
		if err == nil {
			n++
		} else {
			wantErr(t, what, want, err)
		}
	}
	return n
}

func (m *memberTest) remove(by, user membership.Actor) error {
	return errOf(m.Remove(m.Context(), by, user.UserID))
}

// lower leaves a user one permission.
func (m *memberTest) lower(by, user membership.Actor) error {
	return errOf(m.ChangePermissions(m.Context(), by, user.UserID, perm.NewSet(perm.ProgrammesRead), nil))
}

// Two administrators who end each other's or their own membership at the same time leave one (M2).
func TestM2_ConcurrentRemovalsLeaveOneManager(t *testing.T) {
	m := newMemberTest(t)
	for name, end := range map[string]func(by, user membership.Actor) error{
		"remove each other": m.remove,
		"leave":             func(by, _ membership.Actor) error { return errOf(m.Leave(m.Context(), by)) },
		"lower each other":  m.lower,
		"lower themselves":  func(by, _ membership.Actor) error { return m.lower(by, by) },
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

// A manager who strips or removes all others cannot strip the last enabled holder of a permission, even with two
// requests at the same time (M2). A disabled holder may be stripped.
func TestM2_LastHolderOfEachPermissionOfAccountStays(t *testing.T) {
	m := newMemberTest(t)
	for _, p := range []perm.Permission{perm.AccountAPIAccess, perm.AccountReadMembers} {
		for name, end := range map[string]func(by, user membership.Actor) error{
			"remove": m.remove,
			"lower":  m.lower,
			"leave":  func(_, user membership.Actor) error { return errOf(m.Leave(m.Context(), user)) },
			"delete": func(_, user membership.Actor) error {
				return errOf(m.DeleteUser(m.Context(), user.UserID, deletion(user.UserID)))
			},
		} {
			m.fixture.Exec(`delete from account.memberships where tenant_id = $1`, m.workspaceID)
			by, a, b, disabled := m.person(manages...), m.person(p, perm.ProgrammesRead), m.person(p), m.person(p)
			m.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.UserID)
			errs := at(func() error { return end(by, a) }, func() error { return end(by, b) })
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), membership.ErrLastHolder) {
				t.Errorf("%s the holders of %s: %v", name, p, errs)
			}
			if err := end(by, disabled); name != "leave" && name != "delete" && err != nil {
				t.Errorf("%s a disabled holder of %s: %v", name, p, err)
			}
		}
	}
}

func TestM1_NobodyGivesWhatTheyDoNotHold(t *testing.T) {
	m := newMemberTest(t)
	a, b := m.person(manages...), m.person(perm.ProgrammesRead)
	// A member who lost a permission after the caller was checked does not get it back by the change.
	_, err := m.storeTest.Store.ChangePermissions(m.Context(), membership.Change{
		WorkspaceID: m.workspaceID,
		UserID:      b.UserID,
		Permissions: perm.NewSet(perm.ProgrammesWrite),
	}, audit.Event{Authorization: &audit.Authorization{
		UserID:      a.UserID,
		WorkspaceID: m.workspaceID,
		Permissions: perm.NewSet(perm.AccountWriteMembers),
	}})
	wantErr(t, "a permission that the member lost since", membership.ErrChanged, err)
	// The permission ends between the check and the write.
	m.fixture.Exec(`update account.memberships set permissions = '{account:write:members}' where user_id = $1`,
		a.UserID)
	m.fixture.Exec(`update account.memberships set permissions = '{programmes:write:programmes}' where user_id = $1`,
		b.UserID)
	_, err = m.ChangePermissions(m.Context(), a, b.UserID, perm.NewSet(perm.ProgrammesRead), nil)
	wantErr(t, "a permission that was lost since", audit.ErrNotAuthorized, err)
	wantErr(t, "an invitation with a permission that was lost since", audit.ErrNotAuthorized,
		m.invites(a, anAddress("sam")))
}

// A removal ends grants, tokens and sent invitations, and records each end (M3).
func TestM3_RemovalEndsWhatDependsOnMembership(t *testing.T) {
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
	if now := m.stored(g); now.State != grant.Revoked || now.Reason != grant.MembershipOver {
		t.Errorf("the grant is %s for %q", now.State, now.Reason)
	}
	wantErr(t, "an invitation of the removed member", membership.ErrNoInvitation, errOf(m.Offer(m.Context(), sent)))
	for action, want := range map[string]int{audit.MemberRemoved: 1, audit.GrantRevoked: 1, audit.TokenRevoked: 1} {
		m.wantCount(want, "events", `select count(*) from account.audit_events where action = $1 and actor = $2`,
			action, "user:"+a.UserID.String())
	}
	wantErr(t, "twice", membership.ErrNoMember, errOf(m.Remove(m.Context(), a, gone.UserID)))
}

// invited returns the token of an invitation for reading programmes.
func (m *memberTest) invited(by membership.Actor, email string) credential.Secret {
	m.Helper()
	sent, err := m.Invite(m.Context(), by, email, []string{string(perm.ProgrammesRead)})
	must(m, err)
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
	must(m, err)
	return o
}

func (m *memberTest) accept(o membership.Offer, user uuid.UUID) error {
	return m.Accept(m.Context(), o, user, byUser(user))
}

// byUser returns the event of what a user does.
func byUser(user uuid.UUID) audit.Event {
	return audit.Event{Actor: "user:" + user.String(), Authorization: &audit.Authorization{UserID: user}}
}

func TestM4_ConcurrentAnswersHaveOneEffect(t *testing.T) {
	m := newMemberTest(t)
	inviter := m.person(manages...)
	for i := range 5 {
		email := anAddress("sam")
		sam := m.fixture.User(email)
		o := m.offer(m.invited(inviter, email))
		races := map[int]func() error{
			0: func() error { return m.accept(o, sam) },
			1: func() error { return m.Withdraw(m.Context(), inviter, o.ID) },
			2: func() error { return m.Decline(m.Context(), o, &sam, byUser(sam)) },
		}
		errs := at(func() error { return m.accept(o, sam) }, races[i%3])
		if won := succeeded(t, "a later answer", membership.ErrNoInvitation, errs); won != 1 {
			t.Fatalf("%d of two answers had an effect: %v", won, errs)
		}
	}
	// Two people cannot both create an account for one invitation.
	fresh := anAddress("new")
	o := m.offer(m.invited(inviter, fresh))
	create := func() error { return errOf(m.AcceptAsNewUser(m.Context(), o, "Sam Reed", "hash", "r-1")) }
	if errs := at(create, create); (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("%v", errs)
	}
	m.wantCount(1, "accounts", `select count(*) from account.users where email = $1`, fresh)
}

// An acceptance and the removal of the inviter at the same time end in one of two orders: joined before, or refused.
func TestM4_InviterMustStillBeAbleToInvite(t *testing.T) {
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
		wantErr(t, name, membership.ErrInviter, m.accept(o, sam))
	}
	inviter := m.person(manages...)
	o := m.offer(m.invited(inviter, address))
	errs := at(func() error { return m.accept(o, sam) }, func() error { return m.remove(admin, inviter) })
	joined := m.count(`select count(*) from account.memberships where user_id = $1`, sam) == 1
	if errs[1] != nil || joined != (errs[0] == nil) || (!joined && !errors.Is(errs[0], membership.ErrNoInvitation)) {
		t.Errorf("joined %v: %v", joined, errs)
	}
}

func TestM4_InvitationIsBoundToAddressTokenAndTime(t *testing.T) {
	m := newMemberTest(t)
	inviter := m.person(manages...)
	address := anAddress("sam")
	sam := m.fixture.User(address)
	o := m.offer(m.invited(inviter, strings.ToUpper(address)))
	mailed := o // the holder of a link that was not mailed must not learn that there is an account
	mailed.Mailed = true
	wantErr(t, "a person who is not signed in declines", membership.ErrAccountExists,
		m.Decline(m.Context(), mailed, nil, audit.Event{}))
	wantErr(t, "a second account for the address", membership.ErrAccountExists,
		errOf(m.AcceptAsNewUser(m.Context(), o, "Eve", "hash", "")))
	renewed, err := m.Renew(m.Context(), inviter, o.ID, o.Expires)
	must(t, err)
	wantErr(t, "a page that was opened before the renewal", membership.ErrNoInvitation, m.accept(o, sam))
	o = m.offer(tokenOf(t, renewed))
	m.fixture.Exec(`update account.invitations set expires_at = now() where id = $1`, o.ID)
	wantErr(t, "expired", membership.ErrNoInvitation, m.accept(o, sam))
	second := m.invited(inviter, address)
	must(t, m.accept(m.offer(second), sam))
	wantErr(t, "after acceptance", membership.ErrNoInvitation, errOf(m.Offer(m.Context(), second)))
	m.wantCount(1, "events of the acceptance",
		`select count(*) from account.audit_events where user_id = $1 and action = $2
		and detail ->> 'invited_by' = $3`, sam, audit.MemberAdded, inviter.UserID.String())
	m.wantCount(0, "tokens are stored",
		`select count(*) from account.invitations where token_hash::text like '%alm_inv%'`)
}

// A page of members is read by the ids that the list has sorted. Ids of users who are no members are left out.
func TestWorkspaceMembers_AreInTheOrderOfUsers(t *testing.T) {
	m := newMemberTest(t)
	var users []uuid.UUID
	for range 5 {
		users = append(users, m.person().UserID)
	}
	slices.SortFunc(users, func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) })
	asked := slices.Insert(slices.Clone(users), 2, m.fixture.User(anAddress("stranger")))
	members, err := m.WorkspaceMembers(t.Context(), m.workspaceID, asked)
	must(t, err)
	var got []uuid.UUID
	for _, member := range members {
		got = append(got, member.UserID)
	}
	if !slices.Equal(got, users) {
		t.Errorf("members in the order %v, want %v", got, users)
	}
}

// A page of members continues where the one before it ended.
func TestListedMembers_LatestComeFirstPageByPage(t *testing.T) {
	m := newMemberTest(t)
	var want []uuid.UUID
	for range 5 {
		want = append([]uuid.UUID{m.person(perm.ProgrammesRead).UserID}, want...)
	}
	m.fixture.Exec(`update account.memberships set created_at = now() where tenant_id = $1 and user_id = any($2)`,
		m.workspaceID, want[1:3]) // the id decides
	m.fixture.Exec(`update account.memberships set created_at = now() - interval '1 day'
		where tenant_id = $1 and user_id = $2`, m.workspaceID, want[4])
	if slices.Compare(want[1][:], want[2][:]) < 0 {
		want[1], want[2] = want[2], want[1]
	}
	want = []uuid.UUID{want[1], want[2], want[0], want[3], want[4]}
	page, got := membership.MemberPage{Limit: 1}, []uuid.UUID{}
	for range 6 {
		listed, err := m.ListedMembers(t.Context(), m.workspaceID, page)
		must(t, err)
		for _, one := range listed {
			got, page.Before, page.UserID = append(got, one.UserID), one.Since, one.UserID
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %v, want %v", got, want)
	}
	listed, err := m.ListedMembers(t.Context(), m.workspaceID, membership.MemberPage{Limit: 1})
	must(t, err)
	address := listed[0].Email
	for email, n := range map[string]int{"": 5, " " + strings.ToUpper(address): 1, address[1:]: 0, "person-": 0} {
		listed, err := m.ListedMembers(t.Context(), m.workspaceID, membership.MemberPage{Email: email, Limit: 10})
		if err != nil || len(listed) != n {
			t.Errorf("%q finds %d members, want %d: %v", email, len(listed), n, err)
		}
	}
}
