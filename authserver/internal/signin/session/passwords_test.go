package session

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func newPasswords(t *testing.T, users Users, cost Cost) *Passwords {
	t.Helper()
	attempts := NewAttempts(unlimited{}, slog.New(slog.DiscardHandler), time.Now)
	passwords, err := NewPasswords(users, attempts, cost)
	must(t, err)
	return passwords
}

func hashOfPassword(t *testing.T, password string) credential.Secret {
	t.Helper()
	hash, err := HashPassword(password, LowestCost())
	must(t, err)
	return hash
}

func TestPasswords_MatchesOnlyOwnHash(t *testing.T) {
	passwords, hash := newPasswords(t, nil, LowestCost()), hashOfPassword(t, "open sesame")
	for given, want := range map[string]bool{"open sesame": true, "open sesame ": false, "": false} {
		if got, err := passwords.Matches(hash, credential.Secret(given)); got != want || err != nil {
			t.Errorf("%q: %v (%v)", given, got, err)
		}
	}
	if got, err := passwords.Matches("", dummyPassword); got || err != nil {
		t.Errorf("an unknown user has a password: %v (%v)", got, err)
	}
	if _, err := passwords.Matches("$2a$10$not-argon2id", "x"); err == nil {
		t.Error("a hash of another kind is not an error")
	}
}

func TestPasswords_DummyHashCostsAsMuchAsRealOnes(t *testing.T) {
	for _, cost := range []Cost{StandardCost(), LowestCost()} {
		dummy := newPasswords(t, nil, cost).dummy
		if params, _, _, err := argon2id.DecodeHash(dummy.Reveal()); err != nil || *params != *cost.params() {
			t.Errorf("%+v (%v), want %+v", params, err, cost.params())
		}
	}
}

// oneUser is a store with one user.
type oneUser struct {
	workspace.User
	hash credential.Secret
}

func (u oneUser) UserByEmail(_ context.Context, email string) (workspace.User, credential.Secret, bool, error) {
	if email != u.Email {
		return workspace.User{}, "", false, nil
	}
	return u.User, u.hash, true, nil
}

func (oneUser) RenewHash(context.Context, uuid.UUID, credential.Secret, credential.Secret) (bool, error) {
	return false, errors.New("no hash is renewed")
}

func (oneUser) Record(context.Context, audit.Event) error { return nil }

// unlimited is a RateCounter without a limit.
type unlimited struct{}

func (unlimited) Count(context.Context, string, int, time.Duration, bool) (time.Duration, error) {
	return 0, nil
}

// TestVerify_EachRefusalComparesAHash makes the dummy hash unreadable, so that a comparison with it is an error.
func TestVerify_EachRefusalComparesAHash(t *testing.T) {
	hash, disabled := hashOfPassword(t, "right"), time.Now()
	for name, user := range map[string]oneUser{
		"an unknown user":           {workspace.User{Email: "other@example.org"}, hash},
		"a disabled user":           {workspace.User{Email: "ada@example.org", DisabledAt: &disabled}, hash},
		"a user without a password": {workspace.User{Email: "ada@example.org"}, ""},
	} {
		passwords := newPasswords(t, user, LowestCost())
		passwords.dummy = "unreadable"
		_, result, err := passwords.Verify(t.Context(), "ada@example.org", "right", netip.Addr{}, false)
		if result.OK || err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %+v, %v: no hash was compared", name, result, err)
		}
	}
}

// slowUser is a store with one user, whom it finds after a second.
type slowUser struct{ oneUser }

func (u slowUser) UserByEmail(
	ctx context.Context, email string,
) (workspace.User, credential.Secret, bool, error) {
	time.Sleep(time.Second)
	return u.oneUser.UserByEmail(ctx, email)
}

// After a wrong password the turn rests for as long as the hash took, for known and unknown users alike, so that a
// flood leaves half of the time of its turns to other work. It does not rest for the time of the stores.
func TestVerify_RestsAfterWrongPasswords(t *testing.T) {
	user := slowUser{oneUser{workspace.User{Email: "ada@example.org"}, hashOfPassword(t, "right")}}
	passwords, rests := newPasswords(t, user, LowestCost()), []time.Duration{}
	passwords.rest = func(ctx context.Context, hashed time.Duration) {
		rests = append(rests, hashed)
		rest(ctx, hashed)
	}
	for _, c := range []struct {
		email, password string
		rests           int
	}{{"ada@example.org", "right", 0}, {"ada@example.org", "wrong", 1}, {"nobody@example.org", "wrong", 2}} {
		synctest.Test(t, func(t *testing.T) { // in which only the store takes time
			began := time.Now()
			_, result, err := passwords.Verify(t.Context(), c.email, credential.Secret(c.password), netip.Addr{}, false)
			took := time.Since(began)
			if err != nil || result.OK != (c.password == "right") || len(rests) != c.rests || took != time.Second {
				t.Errorf("%s, %s: %+v, %v after %v, rests %v", c.email, c.password, result, err, took, rests)
			}
		})
	}
}

func TestRest_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		for _, c := range []struct {
			ctx          context.Context
			hashed, want time.Duration
		}{
			{t.Context(), 30 * time.Millisecond, 30 * time.Millisecond},
			{t.Context(), time.Minute, longestRest},
			{gone, 30 * time.Millisecond, 0},
		} {
			began := time.Now()
			if rest(c.ctx, c.hashed); time.Since(began) != c.want {
				t.Errorf("after %v it rests for %v, want %v", c.hashed, time.Since(began), c.want)
			}
		}
	})
}

func TestPasswords_OnePasswordInEachUnicodeForm(t *testing.T) {
	passwords := newPasswords(t, nil, LowestCost())
	const composed, decomposed = "p\u00e4ssw\u00f6rter im Wald", "pa\u0308sswo\u0308rter\u00a0im Wald"
	for _, pair := range [][2]string{{composed, decomposed}, {decomposed, composed}} {
		if ok, err := passwords.Matches(hashOfPassword(t, pair[0]), credential.Secret(pair[1])); !ok || err != nil {
			t.Errorf("%+q is not %+q (%v)", pair[1], pair[0], err)
		}
	}
}

// A wrong password that normalization does not change costs one hash: the dummy hash is unreadable, so that a
// comparison with it is an error.
func TestPasswords_FormerHashesCostOnlyOtherSpellings(t *testing.T) {
	passwords := newPasswords(t, nil, LowestCost())
	passwords.dummy = "unreadable"
	ok, _, err := passwords.matchesFormer(t.Context(), uuid.New(), "", "plain or p\u00e4ss")
	if ok || err != nil {
		t.Errorf("a normalized password is compared again: %v, %v", ok, err)
	}
	if _, _, err := passwords.matchesFormer(t.Context(), uuid.New(), "", "pa\u0308ss"); err == nil {
		t.Error("another spelling is not compared for an unknown user, whose refusal then takes less time")
	}
}
