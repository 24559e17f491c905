package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/alexedwards/argon2id"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

// Hash is HashPassword with this cost.
func (c Cost) Hash(password string) (credential.Secret, error) { return HashPassword(password, c) }

// ErrBusy reports that too many passwords are being checked, and others have priority (429).
var ErrBusy = errors.New("too many passwords are being checked at this moment")

// Passwords checks passwords, a limited number at a time. It is safe for concurrent use.
type Passwords struct {
	turns *turnQueue
	cost  Cost
	dummy credential.Secret
}

// dummyPassword is the password of the dummy hash. No user signs in with it.
const dummyPassword = "no password"

// NewPasswords creates a dummy hash of the cost of real ones, so that refusing an unknown user takes as long as
// refusing a known one.
func NewPasswords(cost Cost) (*Passwords, error) {
	dummy, err := HashPassword(dummyPassword, cost)
	if err != nil {
		return nil, err
	}
	return &Passwords{turns: newTurnQueue(time.Now, runtime.GOMAXPROCS(0)), cost: cost, dummy: dummy}, nil
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

// Matches reports whether hash is the hash of password, in any spelling. An empty hash, of an unknown user, takes as
// long and never matches. Call it within a Slot.
func (p *Passwords) Matches(hash, password credential.Secret) (bool, error) {
	return p.compare(hash, spelling.Password(password.Reveal()))
}

// MatchesFormer reports whether hash is the hash of password without normalization, as earlier releases stored it. It
// compares nothing if normalization does not change password, so that most wrong passwords cost one hash.
func (p *Passwords) MatchesFormer(hash, password credential.Secret) (bool, error) {
	if spelling.Password(password.Reveal()) == password.Reveal() {
		return false, nil
	}
	return p.compare(hash, password.Reveal())
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
