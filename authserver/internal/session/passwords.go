package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alexedwards/argon2id"

	"github.com/almonerhq/almoner/shared/credential"
)

// What a password's hash costs: 19 MiB, two passes, one lane (OWASP's minimum for argon2id), about 30 ms.
func cost() *argon2id.Params {
	return &argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

const (
	atOnce      = 2 // hashes at a time: each takes a core and 19 MiB
	longestWait = 3 * time.Second
)

// ErrBusy says that too many passwords are being checked. It is not the caller's fault (503).
var ErrBusy = errors.New("too many passwords are being checked at this moment")

// Passwords check passwords, a bounded number at a time. They are safe for concurrent use.
type Passwords struct {
	slots chan struct{}
	dummy credential.Secret
}

// NewPasswords makes a dummy hash, so that an unknown user takes as long to refuse as a known one.
func NewPasswords() (*Passwords, error) {
	dummy, err := HashPassword("the password of nobody")
	if err != nil {
		return nil, err
	}
	return &Passwords{slots: make(chan struct{}, atOnce), dummy: dummy}, nil
}

// HashPassword returns the argon2id hash of a password in PHC form.
func HashPassword(password string) (credential.Secret, error) {
	hash, err := argon2id.CreateHash(password, cost())
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return credential.Secret(hash), nil
}

// Slot waits for a free slot and runs do in it. It returns ErrBusy when none gets free in time.
func (p *Passwords) Slot(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ErrBusy
	}
	defer func() { <-p.slots }()
	return do()
}

// Matches says whether hash is that of password. An empty hash, that of nobody, takes as long and never matches. Call it
// within a Slot.
func (p *Passwords) Matches(hash, password credential.Secret) (bool, error) {
	nobody := hash == ""
	if nobody {
		hash = p.dummy
	}
	match, err := argon2id.ComparePasswordAndHash(password.Reveal(), hash.Reveal())
	if err != nil {
		return false, fmt.Errorf("the stored hash of a password cannot be read: %w", err)
	}
	return match && !nobody, nil
}
