package membership_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A workspace is one of the test's own, in a real database, with the service that changes its members.
type workspace struct {
	*fixture.Fixture
	*membership.Service
	t     *testing.T
	store *postgres.Store
	ended [][]useraccount.EndedGrant // those of each propagation
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	w := &workspace{Fixture: fixture.Shared(t), t: t}
	var err error
	database := postgres.Only(credential.Secret(w.Database.Authserver))
	if w.store, err = postgres.Open(t.Context(), database, testkit.StoreWait); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	w.Service = &membership.Service{
		Store:               w.store,
		PropagateRevocation: func(_ context.Context, all []useraccount.EndedGrant) { w.ended = append(w.ended, all) },
		AppURL:              "https://app.example.org",
		Random:              rand.Reader,
	}
	return w
}

// member creates a member, who acts with all that they hold.
func (w *workspace) member(held ...perm.Permission) membership.Actor {
	w.t.Helper()
	user := w.Member(held...)
	return membership.Actor{
		UserID:        user,
		WorkspaceID:   w.WorkspaceID,
		Permissions:   perm.NewSet(held...),
		RequestID:     "r-1",
		Authorization: audit.Authorization{UserID: user},
	}
}

// holds returns the permissions of a user in the workspace, as stored.
func (w *workspace) holds(user uuid.UUID) string {
	w.t.Helper()
	member, err := w.store.WorkspaceMember(w.t.Context(), w.WorkspaceID, user)
	if errors.Is(err, membership.ErrNoMember) {
		return "no member"
	}
	must(w.t, err)
	return member.Permissions.Scope()
}

// token returns the token of a link.
func token(t *testing.T, sent membership.Sent) credential.Secret {
	t.Helper()
	link, err := url.Parse(sent.Link.Reveal())
	if err != nil || link.Scheme+"://"+link.Host+link.Path != "https://app.example.org/invitation" {
		t.Fatalf("%s, %v", sent.Link.Reveal(), err)
	}
	return credential.Secret(link.Query().Get("token"))
}

// A caller gives only what the caller holds (M1); taking needs account:write:members alone.
func TestM1_CallerGivesOnlyPermissionsThatItHolds(t *testing.T) {
	const manages, forms, reads, writes = perm.AccountWriteMembers, perm.EngageReadForms, perm.ProgrammesRead,
		perm.ProgrammesWrite
	set := func(of ...perm.Permission) perm.Set { return perm.NewSet(of...) }
	for what, c := range map[string]struct {
		caller, gives perm.Set
		seen          *perm.Set
		missing       string
		err           error
	}{
		"what it holds":         {caller: set(manages, reads), gives: set(reads)},
		"and leaves the rest":   {caller: set(manages, reads), gives: set(reads, forms)},
		"nothing":               {caller: set(manages)},
		"as the caller saw":     {caller: set(manages), seen: new(set(forms))},
		"not as the caller saw": {caller: set(manages), seen: new(set(writes)), err: membership.ErrChanged},
		"what it does not hold": {caller: set(manages, reads), gives: set(reads, writes), missing: string(writes)},
		"what it may not give":  {caller: set(reads), gives: set(reads), err: audit.ErrNotAuthorized},
	} {
		w := newWorkspace(t)
		by, user := w.member(c.caller...), w.member(forms).UserID
		member, err := w.ChangePermissions(t.Context(), by, user, c.gives, c.seen)
		notHeld, lacks := errors.AsType[*membership.NotHeld](err)
		switch {
		case c.missing != "":
			if !lacks || notHeld.Missing.Scope() != c.missing || !strings.Contains(notHeld.Error(), c.missing) {
				t.Errorf("%s: %v", what, err)
			}
		case !errors.Is(err, c.err) || lacks:
			t.Errorf("%s: %v, want %v", what, err, c.err)
		}
		want := string(forms)
		if err == nil {
			want = c.gives.Scope()
			if member.Permissions.Scope() != want || member.UserID != user {
				t.Errorf("%s: returned %+v", what, member)
			}
		}
		if got := w.holds(user); got != want {
			t.Errorf("%s: holds %q, want %q", what, got, want)
		}
	}
	w := newWorkspace(t)
	stranger := w.User("stranger-" + uuid.NewString() + "@example.org")
	_, err := w.ChangePermissions(t.Context(), w.member(perm.AccountWriteMembers), stranger, nil, nil)
	if !errors.Is(err, membership.ErrNoMember) {
		t.Errorf("a user who is no member: %v", err)
	}
}

// The last member with account:write:members can be neither removed nor lowered, nor leave (M2). The end of a
// membership ends the user's grants (M3).
func TestM2_LastManagerStaysAndOthersEnd(t *testing.T) {
	w := newWorkspace(t)
	manager, other := w.member(perm.AccountWriteMembers), w.member(perm.ProgrammesRead)
	application, granted := w.Connector("r", perm.ProgrammesRead), uuid.New()
	w.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		values ($1, 'connector', $2, $3, $4, '{}', 'r', 'active', now() + interval '1 day')`,
		granted, application.ID, other.UserID, w.WorkspaceID)
	_, left := w.Leave(t.Context(), manager)
	_, lowered := w.ChangePermissions(t.Context(), manager, manager.UserID, nil, nil)
	_, removed := w.Remove(t.Context(), manager, manager.UserID)
	for what, err := range map[string]error{"leaves": left, "is lowered": lowered, "is removed": removed} {
		if !errors.Is(err, membership.ErrLastHolder) {
			t.Errorf("the last manager %s: %v", what, err)
		}
	}
	if _, err := w.Remove(t.Context(), other, manager.UserID); !errors.Is(err, audit.ErrNotAuthorized) {
		t.Errorf("removed by who may not: %v", err)
	}
	if len(w.ended) != 0 {
		t.Error("ends of grants are propagated although no membership ended")
	}
	if _, err := w.Remove(t.Context(), manager, other.UserID); err != nil || w.holds(other.UserID) != "no member" {
		t.Errorf("%v", err)
	}
	if _, err := w.Remove(t.Context(), manager, other.UserID); !errors.Is(err, membership.ErrNoMember) {
		t.Errorf("removed again: %v", err)
	}
	second := w.member(perm.AccountWriteMembers)
	if _, err := w.Leave(t.Context(), second); err != nil || w.holds(second.UserID) != "no member" {
		t.Errorf("%v", err)
	}
	if e := w.ended; len(e) != 2 || len(e[0]) != 1 || e[0][0].ID != granted || len(e[1]) != 0 {
		t.Errorf("the ends of the grants %v are propagated, want that of %s and then none", e, granted)
	}
}

// Nobody invites with permissions that they do not hold (M1), a member, or one address twice without replacing.
func TestInvite_RefusesAndReplaces(t *testing.T) {
	w := newWorkspace(t)
	by := w.member(perm.AccountWriteMembers, perm.ProgrammesRead)
	address := "ada-" + uuid.NewString() + "@example.org"
	const reads = "programmes:read:programmes"
	_, err := w.Invite(t.Context(), by, "ada", []string{reads})
	if !strings.HasPrefix(refusal(err), "email") {
		t.Errorf("no address: %v", err)
	}
	_, err = w.Invite(t.Context(), by, address, nil)
	if !strings.HasPrefix(refusal(err), "permissions") {
		t.Errorf("no permissions: %v", err)
	}
	_, err = w.Invite(t.Context(), by, address, []string{reads, "engage:read:forms"})
	if notHeld, ok := errors.AsType[*membership.NotHeld](err); !ok || notHeld.Missing.Scope() != "engage:read:forms" {
		t.Errorf("a permission that the inviter does not hold: %v", err)
	}
	var email string
	w.Read("select email from account.users where id = '"+by.UserID.String()+"'", &email)
	if _, err = w.Invite(t.Context(), by, email, []string{reads}); !errors.Is(err, membership.ErrMember) {
		t.Errorf("a member: %v", err)
	}
	first := mustSend(t, w, by, address)
	batch := membership.Batch{
		Emails:      []string{"first-" + address, address},
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Form:        uuid.New(),
	}
	_, err = w.InviteAll(t.Context(), by, batch)
	if taken, is := errors.AsType[*membership.Taken](err); !is ||
		!slices.Equal(taken.Invited, batch.Emails[1:]) || errors.Is(err, membership.ErrMember) {
		t.Errorf("invited twice: %v", err)
	}
	_, err = w.InviteAll(t.Context(), by, batch)
	if taken, is := errors.AsType[*membership.Taken](err); !is || !slices.Equal(taken.Invited, batch.Emails[1:]) {
		t.Errorf("one of the others was invited: %v", err)
	}
	batch.Replace = []string{address}
	replaced, err := w.InviteAll(t.Context(), by, batch)
	if err != nil || len(replaced) != 2 || replaced[1].Email != address || replaced[1].InviterID != by.UserID {
		t.Fatalf("replaced: %+v, %v", replaced, err)
	}
	second := replaced[1]
	if _, err = w.InviteAll(t.Context(), by, batch); !errors.Is(err, membership.ErrSent) {
		t.Errorf("sent twice: %v", err)
	}
	batch.Emails = append(batch.Emails, "third-"+address)
	if more, err := w.InviteAll(t.Context(), by, batch); err != nil || len(more) != 1 {
		t.Errorf("the same form, with one more address: %+v, %v", more, err)
	}
	if _, err = w.Offer(t.Context(), token(t, first)); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("the link of a replaced invitation: %v", err)
	}
	offer, err := w.Offer(t.Context(), token(t, second))
	if err != nil || offer.ID != second.ID || offer.HasAccount || offer.Mailed || offer.Permissions.Scope() != reads {
		t.Errorf("%+v, %v", offer, err)
	}
	if _, err = w.Offer(t.Context(), "alm_inv_x"); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("no token: %v", err)
	}
	broken := *w.Service
	for _, mails := range []bool{true, false} {
		if broken.Mails = mails; broken.Mailed() != mails {
			t.Errorf("a deployment with mail %t mails invitations: %t", mails, broken.Mailed())
		}
	}
	broken.Random = iotest.ErrReader(errors.New("no random numbers"))
	if sent, err := broken.Invite(t.Context(), by, "b"+address, []string{reads}); err == nil || sent.Link != "" {
		t.Errorf("without random numbers: %+v, %v", sent, err)
	}
}

// mustSend invites an address to read programmes.
func mustSend(t *testing.T, w *workspace, by membership.Actor, address string) membership.Sent {
	t.Helper()
	sent, err := w.Invite(t.Context(), by, address, []string{"programmes:read:programmes"})
	must(t, err)
	return sent
}

// A renewed invitation has a new link and the caller as inviter; the same request again renews nothing.
func TestRenew_ReplacesLinkOnceForExpiryThatWasSeen(t *testing.T) {
	w := newWorkspace(t)
	by := w.member(perm.AccountWriteMembers, perm.ProgrammesRead)
	next := w.member(perm.AccountWriteMembers, perm.ProgrammesRead)
	sent := mustSend(t, w, by, "ada-"+uuid.NewString()+"@example.org")
	less := w.member(perm.AccountWriteMembers)
	_, err := w.Renew(t.Context(), less, sent.ID, sent.Expires)
	notHeld, lacks := errors.AsType[*membership.NotHeld](err)
	if !lacks || notHeld.Missing.Scope() != string(perm.ProgrammesRead) {
		t.Errorf("by who does not hold the permissions: %v", err)
	}
	renewed, err := w.Renew(t.Context(), next, sent.ID, sent.Expires)
	if err != nil || renewed.InviterID != next.UserID || !renewed.Expires.After(sent.Expires) {
		t.Errorf("%+v, %v", renewed, err)
	}
	for what, id := range map[string]uuid.UUID{"again": sent.ID, "unknown": uuid.New()} {
		if _, err := w.Renew(t.Context(), next, id, sent.Expires); !errors.Is(err, membership.ErrNoInvitation) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.Offer(t.Context(), token(t, sent)); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("the earlier link: %v", err)
	}
	if err := w.Withdraw(t.Context(), by, sent.ID); err != nil {
		t.Errorf("withdrawn: %v", err)
	}
	if err := w.Withdraw(t.Context(), by, sent.ID); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("withdrawn again: %v", err)
	}
	if _, err := w.Offer(t.Context(), token(t, renewed)); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("the link of a withdrawn invitation: %v", err)
	}
}

// An invitation is accepted once, by the user with its address (M4), or declined.
func TestM4_InvitationIsAnsweredOnceByItsAddress(t *testing.T) {
	w := newWorkspace(t)
	by := w.member(perm.AccountWriteMembers, perm.ProgrammesRead)
	invite := func(address string) (membership.Offer, credential.Secret) {
		t.Helper()
		link := token(t, mustSend(t, w, by, address))
		offer, err := w.Offer(t.Context(), link)
		must(t, err)
		return offer, link
	}
	signedIn := func(user uuid.UUID) audit.Event {
		return audit.Event{
			Actor:         "user:" + user.String(),
			Authorization: &audit.Authorization{UserID: user},
			RequestID:     "r-2",
		}
	}
	address, other := "ada-"+uuid.NewString()+"@example.org", w.User("other-"+uuid.NewString()+"@example.org")
	user := w.User(address)
	offer, link := invite(address)
	if err := w.Accept(t.Context(), offer, other, signedIn(other)); !errors.Is(err, membership.ErrOtherAddress) {
		t.Errorf("accepted by another user: %v", err)
	}
	if err := w.Decline(t.Context(), offer, &other, signedIn(other)); !errors.Is(err, membership.ErrOtherAddress) {
		t.Errorf("declined by another user: %v", err)
	}
	err := w.Accept(t.Context(), offer, user, signedIn(user))
	if err != nil || w.holds(user) != offer.Permissions.Scope() {
		t.Errorf("accepted: %v, holds %s", err, w.holds(user))
	}
	if err := w.Accept(t.Context(), offer, user, signedIn(user)); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("accepted twice: %v", err)
	}
	ended, err := w.Ended(t.Context(), link, user)
	if err != nil || ended.Workspace != "Riverside Food Bank" || ended.Outcome != "accepted" || !ended.Member {
		t.Errorf("joined %+v, %v", ended, err)
	}
	if ended, err := w.Ended(t.Context(), link, other); err != nil || ended.Member || ended.Inviter == "" {
		t.Errorf("another user at the same link: %+v, %v", ended, err)
	}
	offer, _ = invite("new-" + address)
	joined, err := w.AcceptAsNewUser(t.Context(), offer, "Grace", "", "r-3")
	if err != nil || w.holds(joined) != offer.Permissions.Scope() {
		t.Errorf("accepted by a new user: %v", err)
	}
	var event string
	w.Read(`select string_agg(action || ' ' || (detail->>'invitation' = '`+offer.ID.String()+`'), ', ' order by action)
		from account.audit_events where user_id = '`+joined.String()+`'`, &event)
	if event != string(audit.MemberAdded)+" true, "+string(audit.UserAdded)+" true" {
		t.Errorf("events of a new user: %s", event)
	}
	offer, link = invite("third-" + address)
	if err := w.Decline(t.Context(), offer, nil, audit.Event{Actor: "link", RequestID: "r-4"}); err != nil {
		t.Errorf("declined by who has the link: %v", err)
	}
	if _, err := w.Offer(t.Context(), link); !errors.Is(err, membership.ErrNoInvitation) {
		t.Errorf("the link of a declined invitation: %v", err)
	}
	if !offer.Expires.After(time.Now().Add(membership.Life - time.Hour)) {
		t.Errorf("ends at %s", offer.Expires)
	}
}
