// Package loginstate stores the state of a login or registration between its two requests.
//
// Signing in with a passkey or at another provider takes two requests, with a step in between that the server does not
// see. The first request hands out a secret (a challenge or a state), by which the second finds its login state.
//
//	C1 A login state is finished at the browser or the sign-in that began it, and nowhere else.
//	C2 It is finished once, whether the response then proves valid or not.
//	C3 It is forgotten after its life, which the store's clock measures.
//	C4 A secret presented elsewhere reveals nothing and does not affect the login that it belongs to.
//
// Caller: endpoint/signin.
package loginstate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// A Purpose is what a login state is for. A secret of one purpose is unknown to every other.
type Purpose string

// The purposes.
const (
	AddPasskey    Purpose = "add_passkey"
	NewAccount    Purpose = "new_account" // a passkey of a user who is created with it
	PasskeySignIn Purpose = "passkey_sign_in"
	PasskeyReauth Purpose = "passkey_again"
	OIDCSignIn    Purpose = "upstream_sign_in"
	OIDCTakeover  Purpose = "upstream_takeover"
)

// A Record is a login state as it is stored, with no secret in the clear: Data is sealed.
type Record struct {
	SecretHash  []byte
	BindingHash []byte
	Purpose     Purpose
	Data        []byte
	Life        time.Duration
}

// A Store stores login states. Its errors wrap store.ErrUnavailable.
type Store interface {
	SaveLoginState(ctx context.Context, c Record) error
	// TakeLoginState removes a login state and returns its data, and false if there is no live one (C1 to C4).
	TakeLoginState(ctx context.Context, secretHash, bindingHash []byte, purpose Purpose) ([]byte, bool, error)
}

// A Binding identifies the browser or sign-in that may finish a login state.
type Binding struct{ of string }

// BindToSignIn returns the binding to one sign-in of a user.
func BindToSignIn(id uuid.UUID) Binding { return Binding{"sign_in:" + id.String()} }

// States begins and finishes login states. It is safe for concurrent use.
type States struct {
	store  Store
	box    *seal.Box
	secure bool
}

// New returns States, whose data is sealed under keys. secure reports whether the pages are served over https.
func New(store Store, keys seal.Keys, secure bool) (*States, error) {
	box, err := seal.NewBox(keys, "login states")
	return &States{store, box, secure}, err
}

// Begin stores data for life, to be found by secret.
func (s *States) Begin(
	ctx context.Context,
	purpose Purpose,
	by Binding,
	secret string,
	life time.Duration,
	data any,
) error {
	content, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("store login state: %w", err)
	}
	return s.store.SaveLoginState(ctx, Record{
		SecretHash:  hash(secret),
		BindingHash: hash(by.of),
		Purpose:     purpose,
		Data:        s.box.SealBytes(content),
		Life:        life,
	})
}

// Take finishes a login state and decodes its data into data, a pointer. It returns false if there is none.
func (s *States) Take(ctx context.Context, purpose Purpose, by Binding, secret string, data any) (bool, error) {
	content, found, err := s.store.TakeLoginState(ctx, hash(secret), hash(by.of), purpose)
	if err != nil || !found {
		return false, err
	}
	if opened, err := s.box.OpenBytes(content); err == nil {
		content = opened // otherwise the previous release stored it, as JSON
	}
	if err := json.Unmarshal(content, data); err != nil {
		return false, fmt.Errorf("read login state: %w", err)
	}
	return true, nil
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
