// Package loginstate answers: was this begun at this very browser, lately, and is it not finished yet?
//
// Signing in by a passkey or at another provider takes two requests with something in between that we do not see. What
// the first one hands out (a challenge, a state) is the secret by which the second one finds what was begun.
//
//	C1 A ceremony is finished at the browser that began it, or at the sign-in that began it, and nowhere else.
//	C2 It is finished once, whether the answer is then found good or bad.
//	C3 It is forgotten after its life, which the store's clock measures.
//	C4 Who presents a secret elsewhere learns nothing and takes nothing from the one who began.
//
// Callers: endpoint/passkeys, endpoint/upstream.
package loginstate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// A Purpose is what a ceremony is for. A secret of one is unknown to every other.
type Purpose string

// The purposes.
const (
	AddPasskey    Purpose = "add_passkey"
	PasskeySignIn Purpose = "passkey_sign_in"
	PasskeyReauth Purpose = "passkey_again"
	OIDCSignIn    Purpose = "upstream_sign_in"
)

// A Record is a ceremony as it is stored: no secret in the clear.
type Record struct {
	SecretHash  []byte
	BindingHash []byte
	Purpose     Purpose
	Data        []byte
	Life        time.Duration
}

// A Store keeps ceremonies. Its errors wrap store.ErrUnavailable.
type Store interface {
	SaveLoginState(ctx context.Context, c Record) error
	// TakeLoginState removes the ceremony and returns its data; false: there is none that lives (C1 to C4).
	TakeLoginState(ctx context.Context, secretHash, bindingHash []byte, purpose Purpose) ([]byte, bool, error)
}

// A Binding says where a ceremony may be finished.
type Binding struct{ of string }

// BindToSignIn binds to one sign-in of a user.
func BindToSignIn(id uuid.UUID) Binding { return Binding{"sign_in:" + id.String()} }

// States begin and finish ceremonies. They are safe for concurrent use.
type States struct {
	store  Store
	secure bool
}

// New makes Ceremonies. secure: the pages are served over https.
func New(store Store, secure bool) *States { return &States{store, secure} }

// Begin keeps data for life, to be found by secret.
func (c *States) Begin(
	ctx context.Context,
	purpose Purpose,
	by Binding,
	secret string,
	life time.Duration,
	data any,
) error {
	content, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("keep a ceremony: %w", err)
	}
	return c.store.SaveLoginState(ctx, Record{
		SecretHash:  hash(secret),
		BindingHash: hash(by.of),
		Purpose:     purpose,
		Data:        content,
		Life:        life,
	})
}

// Take finishes a ceremony and fills data, a pointer, with what was kept; false: there is none.
func (c *States) Take(ctx context.Context, purpose Purpose, by Binding, secret string, data any) (bool, error) {
	content, found, err := c.store.TakeLoginState(ctx, hash(secret), hash(by.of), purpose)
	if err != nil || !found {
		return false, err
	}
	if err := json.Unmarshal(content, data); err != nil {
		return false, fmt.Errorf("read a ceremony: %w", err)
	}
	return true, nil
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
