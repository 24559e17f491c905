package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Cost is the work of a password hash (argon2id with one lane).
type Cost struct {
	KiB    uint32
	Passes uint32
}

// StandardCost returns OWASP's minimum for argon2id: 19 MiB, two passes, about 30 ms.
func StandardCost() Cost { return Cost{KiB: 19 * 1024, Passes: 2} }

// LowestCost returns the least that argon2id allows, for tests.
func LowestCost() Cost { return Cost{KiB: 8, Passes: 1} }

func (c Cost) params() *argon2id.Params {
	return &argon2id.Params{Memory: c.KiB, Iterations: c.Passes, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

// HashPassword returns the argon2id hash of a password in PHC form. Passwords that differ only in their spelling have
// one hash (NIST SP 800-63B, section 3.1.1.2).
func HashPassword(password string, cost Cost) (credential.Secret, error) {
	hash, err := argon2id.CreateHash(spelling.Password(password), cost.params())
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return credential.Secret(hash), nil
}

// ErrBusy reports that too many passwords are being checked, and others have priority (429).
var ErrBusy = errors.New("too many passwords are being checked at this moment")

// Users finds users by e-mail address, with their password hash, and returns false if there is none.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	// RenewHash replaces the hash of a password by another one of the same password. It returns false, and changes
	// nothing, if the user has another hash by now.
	RenewHash(ctx context.Context, user uuid.UUID, former, hash credential.Secret) (bool, error)
	// Record stores an audit event.
	Record(ctx context.Context, e audit.Event) error
}

// Passwords authenticates users by e-mail address and password, a limited number at a time, and counts wrong passwords.
// It is safe for concurrent use.
type Passwords struct {
	users    Users
	attempts *Attempts
	turns    *turnQueue
	cost     Cost
	dummy    credential.Secret
}

// dummyPassword is the password of the dummy hash. No user signs in with it.
const dummyPassword = "no password"

// NewPasswords creates a dummy hash of the cost of real ones, so that refusing an unknown user takes as long as
// refusing a known one.
func NewPasswords(users Users, attempts *Attempts, cost Cost) (*Passwords, error) {
	dummy, err := HashPassword(dummyPassword, cost)
	turns := newTurnQueue(time.Now, runtime.GOMAXPROCS(0))
	return &Passwords{users, attempts, turns, cost, dummy}, err
}

// Hash returns the hash of a password. Call it within a Slot.
func (p *Passwords) Hash(password string) (credential.Secret, error) {
	return HashPassword(password, p.cost)
}

// Slot waits for a turn and runs do in it. It returns ErrBusy if no turn comes in time.
func (p *Passwords) Slot(ctx context.Context, c Caller, do func() error) error {
	leave, err := p.turns.enter(ctx, c)
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

// Wrong counts a wrong password, which lowers the priority of its network and account.
func (p *Passwords) Wrong(c Caller) { p.turns.wrong(c) }

// A Result is the result of a verification.
type Result struct {
	OK    bool
	Proof Proof         // if OK
	Limit web.RateLimit // if its Reset is not 0, the address is beyond this limit, and nothing was checked
}

// Verify checks a password. Beyond the limit a correct password is refused like any other. An unknown address, a
// disabled user and a wrong password cost the same work. known: the browser has signed in to this account before.
// Verify returns ErrBusy, or an error that wraps store.ErrUnavailable.
func (p *Passwords) Verify(
	ctx context.Context, email string, password credential.Secret, from netip.Addr, known bool,
) (user workspace.User, result Result, err error) {
	if result.Limit = p.attempts.passwordsHere(email, from); result.Limit.Reset > 0 {
		return user, result, nil // without a turn, so a flood from one address does not delay others
	}
	caller := Caller{Email: email, Address: from, Known: known}
	err = p.Slot(ctx, caller, func() error {
		if result.Limit = p.attempts.passwords(ctx, email, from, false); result.Limit.Reset > 0 {
			return nil
		}
		found, hash, exists, err := p.users.UserByEmail(ctx, email)
		if err != nil {
			return err
		}
		if found.DisabledAt != nil {
			hash = ""
		}
		user = found
		result.OK, err = p.Matches(hash, password)
		if err == nil && !result.OK {
			result.OK, hash, err = p.matchesFormer(ctx, found.ID, hash, password)
		}
		if err != nil {
			return err
		}
		if result.OK {
			result.Proof = Proof{Method: Password, PasswordHash: hash}
			return nil
		}
		p.Wrong(caller)
		result.Limit = p.attempts.passwords(ctx, email, from, true)
		return p.users.Record(ctx, wrongPassword(ctx, found, exists, from))
	})
	return user, result, err
}

// Matches reports whether hash is the hash of password, in any spelling. An empty hash, of an unknown user, takes as
// long and never matches. Call it within a Slot.
func (p *Passwords) Matches(hash, password credential.Secret) (bool, error) {
	return p.compare(hash, spelling.Password(password.Reveal()))
}

// matchesFormer reports whether former is the hash of password without normalization, as earlier releases stored it. If
// so, it replaces it by hash. It compares nothing if normalization does not change password, so that most wrong
// passwords cost one hash.
func (p *Passwords) matchesFormer(
	ctx context.Context, user uuid.UUID, former, password credential.Secret,
) (ok bool, hash credential.Secret, err error) {
	if spelling.Password(password.Reveal()) == password.Reveal() {
		return false, former, nil
	}
	if ok, err = p.compare(former, password.Reveal()); err != nil || !ok {
		return false, former, err
	}
	if hash, err = p.Hash(password.Reveal()); err == nil {
		ok, err = p.users.RenewHash(ctx, user, former, hash)
	}
	return ok && err == nil, hash, err
}

func (p *Passwords) compare(hash credential.Secret, text string) (bool, error) {
	unknown := hash == ""
	if unknown {
		hash = p.dummy
	}
	match, err := argon2id.ComparePasswordAndHash(text, hash.Reveal())
	if err != nil {
		return false, fmt.Errorf("the stored hash of a password cannot be read: %w", err)
	}
	return match && !unknown, nil
}

// wrongPassword returns the event of a wrong password. An e-mail address that belongs to no user is not recorded,
// because it may be a mistyped password.
func wrongPassword(ctx context.Context, user workspace.User, known bool, from netip.Addr) audit.Event {
	event := audit.Event{
		Actor:     "anonymous",
		Action:    audit.SignInFailed,
		Subject:   "user:unknown",
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": from.String()},
	}
	if known {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	return event
}
