package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// spellings are addresses as earlier releases stored them, each with what the same person types elsewhere.
var spellings = map[string][]string{
	"ada@xn--mnchen-3ya.example":    {"ada@münchen.example", "Ada@MU\u0308NCHEN.example", "ada@xn--mnchen-3ya.example"},
	"bob@zürich.example":            {"bob@xn--zrich-kva.example", "bob@zu\u0308rich.example"},
	"jose\u0301@example.org":        {"jos\u00e9@example.org", "JOSE\u0301@example.org"},
	"ren\u00e9@example.org":         {"rene\u0301@EXAMPLE.org", "\u202aren\u00e9@example.org\u202c"},
	"zoe\u0308@xn--kln-sna.example": {"zo\u00eb@k\u00f6ln.example"},
}

func TestUsers_OfEarlierReleasesAreFoundInAnySpelling(t *testing.T) {
	t.Parallel()
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
			if !errors.Is(err, admin.ErrEmailTaken) {
				t.Errorf("%+q gets a second account beside %+q: %v", text, stored, err)
			}
		}
	}
	if user, _, found, _ := m.UserByEmail(t.Context(), "ada@munchen.example"); found {
		t.Errorf("another domain finds %s", user.Email)
	}
}

func membershipEmail(t *testing.T, text string) string {
	t.Helper()
	email, err := membership.ParseEmail(text)
	if err != nil {
		t.Fatal(err)
	}
	return email
}

// An invitation in another spelling than the account's is for the same person.
func TestInvitations_AreForAddressInAnySpelling(t *testing.T) {
	t.Parallel()
	m := ownMemberTest(t)
	inviter := m.person(manages...)
	for stored, typed := range spellings {
		id := m.fixture.User(stored)
		offer := m.offer(m.invited(inviter, typed[0]))
		if !offer.HasAccount {
			t.Errorf("an invitation of %+q does not know the account of %+q", typed[0], stored)
		}
		_, err := m.AcceptAsNewUser(t.Context(), offer, "Second", "", "r")
		if !errors.Is(err, membership.ErrAccountExists) {
			t.Errorf("%+q gets a second account beside %+q: %v", typed[0], stored, err)
		}
		event := audit.Event{Actor: "user:" + id.String(), Authorization: &audit.Authorization{UserID: id}}
		if err := m.Accept(t.Context(), offer, id, event); err != nil {
			t.Errorf("%+q cannot accept an invitation of %+q: %v", stored, typed[0], err)
		}
		_, err = m.Invite(t.Context(), inviter, typed[len(typed)-1], []string{"programmes:read:programmes"})
		if !errors.Is(err, membership.ErrMember) {
			t.Errorf("a member is invited in another spelling: %v", err)
		}
	}
}

// `migrate --finish` rewrites the addresses that are not canonical, and leaves those that another user has.
func TestFinishUpgrade_RespellsAddressesAndMergesNobody(t *testing.T) {
	t.Parallel()
	m := ownMemberTest(t)
	ids := map[string]uuid.UUID{}
	for stored := range spellings {
		ids[stored] = m.fixture.User(stored)
	}
	ours, theirs := m.fixture.User("eve@xn--bcher-kva.example"), m.fixture.User("eve@bücher.example")
	owner := credential.Secret(m.fixture.Owner.Config().ConnString())
	for range 2 { // it is safe to repeat
		if left, err := postgres.FinishUpgrade(t.Context(), owner); left != 1 || err != nil {
			t.Fatalf("%d are left: %v", left, err)
		}
	}
	for stored, typed := range spellings {
		user, _, _, err := m.UserByID(t.Context(), ids[stored])
		if want := membershipEmail(t, typed[0]); user.Email != want || err != nil {
			t.Errorf("%+q is %+q now, want %+q: %v", stored, user.Email, want, err)
		}
	}
	duplicates, err := m.DuplicateUsers(t.Context())
	if err != nil || len(duplicates) != 2 || duplicates[0].Address != "eve@bücher.example" {
		t.Fatalf("%+v: %v", duplicates, err)
	}
	// Each of them still signs in with the spelling that is stored.
	for spelled, id := range map[string]uuid.UUID{"eve@xn--bcher-kva.example": ours, "eve@bücher.example": theirs} {
		if user, _, _, err := m.UserByEmail(t.Context(), spelled); user.ID != id || err != nil {
			t.Errorf("%q finds another user: %v", spelled, err)
		}
	}
	if _, err := m.DeleteUser(t.Context(), theirs, byOperator(audit.UserDeleted, theirs)); err != nil {
		t.Fatal(err)
	}
	if left, err := postgres.FinishUpgrade(t.Context(), owner); left != 0 || err != nil {
		t.Errorf("%d are left: %v", left, err)
	}
}

// Without its invisible characters, an address may be another mailbox: `migrate --finish` leaves it to the operator.
func TestFinishUpgrade_LeavesAddressesWithInvisibleCharacters(t *testing.T) {
	t.Parallel()
	m := ownMemberTest(t)
	unseen := []string{
		"ad\u200ba@example.org", "b\u00adob@example.org", "\u202aeve@example.org", "zo\u200de@example.org",
	}
	ids := map[string]uuid.UUID{}
	for _, stored := range unseen {
		ids[stored] = m.fixture.User(stored)
	}
	owner := credential.Secret(m.fixture.Owner.Config().ConnString())
	if left, err := postgres.FinishUpgrade(t.Context(), owner); left != len(unseen) || err != nil {
		t.Errorf("%d are left: %v", left, err)
	}
	for stored, id := range ids {
		if user, _, _, err := m.UserByID(t.Context(), id); user.Email != stored || err != nil {
			t.Errorf("%+q is %+q now: %v", stored, user.Email, err)
		}
	}
	listed, err := m.DuplicateUsers(t.Context())
	if err != nil || len(listed) != len(unseen) {
		t.Fatalf("%+v: %v", listed, err)
	}
	for _, d := range listed {
		if ids[d.Email] != d.ID {
			t.Errorf("%+q is listed as %s", d.Email, d.ID)
		}
	}
}

// The hash of a password that an earlier release stored for its very text is replaced at the next sign-in.
func TestRenewHash_ReplacesOnlyHashThatWasRead(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	id := m.fixture.User(uuid.NewString() + "@example.org")
	hashes := make([]credential.Secret, 3)
	for i := range hashes {
		hash, err := session.HashPassword("a password", session.LowestCost())
		if err != nil {
			t.Fatal(err)
		}
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
