// Package keyring manages the keys that sign and verify access tokens.
//
// A key is next, then current, then retired, and finally removed. The next key is published before it signs, so that
// every verifier knows it by then. A retired key is published until the last token that it signed has expired. Private
// halves are stored sealed. Each process reads the keys again every few seconds, so a rotation needs no restart.
package keyring

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// A State is the state of a key.
type State string

// The states.
const (
	Next    State = "next"
	Current State = "current"
	Retired State = "retired"
	Removed State = "removed"
)

// A StoredKey is a key as Postgres stores it.
type StoredKey struct {
	KID       string
	Public    []byte // a JWK
	Sealed    []byte // the private JWK, sealed
	State     State
	Created   time.Time
	Activated *time.Time
	Retired   *time.Time
}

// A Store stores keys. Its errors wrap store.ErrUnavailable if it does not respond.
type Store interface {
	// SigningKeys returns every key that is not removed.
	SigningKeys(ctx context.Context) ([]StoredKey, error)
	// ChangeSigningKeys runs decide under a lock with every key that is not removed, and applies the change with its
	// events, or nothing.
	ChangeSigningKeys(ctx context.Context, decide Decision) error
}

// ErrNoKey reports that there is no key to sign with yet.
var ErrNoKey = errors.New("no signing key is loaded")

type snapshot struct {
	signers []accesstoken.SigningKey // the current key, then the next keys in the order in which they will sign
	public  *accesstoken.Keys
	json    []byte
}

// A Keyring holds the signing keys of a process. It is safe for concurrent use.
type Keyring struct {
	store  Store
	box    *seal.Box
	maxAge time.Duration
	loaded atomic.Pointer[snapshot]
	loads  singleflight.Group
}

// New returns a Keyring whose private keys are sealed under keys.
func New(store Store, keys seal.Keys) (*Keyring, error) {
	box, err := seal.NewBox(keys, "signing keys")
	if err != nil {
		return nil, err
	}
	return &Keyring{store: store, box: box}, nil
}

// RotateAfter makes Run rotate the current key once it has signed for age; 0, the default, means never. Call it before
// Run.
func (k *Keyring) RotateAfter(age time.Duration) { k.maxAge = age }

// Load reads the keys, and creates the first ones if there are none.
func (k *Keyring) Load(ctx context.Context) error {
	_, err := k.load(ctx)
	return err
}

func (k *Keyring) load(ctx context.Context) ([]StoredKey, error) {
	stored, err := k.store.SigningKeys(ctx)
	_, signing := find(stored, Current)
	_, ready := find(stored, Next)
	if err == nil && !(signing && ready) {
		if err = k.store.ChangeSigningKeys(ctx, k.missing); err == nil {
			stored, err = k.store.SigningKeys(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	return stored, k.adopt(stored)
}

// Ready returns nil once the keys are loaded. Until then it loads them.
func (k *Keyring) Ready(ctx context.Context) error {
	if k.loaded.Load() != nil {
		return nil
	}
	return k.loadOnce(ctx)
}

// readyWithin limits the load that a request waits for. The load outlives the request that began it, because others
// share it.
const readyWithin = 2 * time.Second

// loadOnce is Load for requests. Concurrent calls share one load.
func (k *Keyring) loadOnce(ctx context.Context) error {
	_, err, _ := k.loads.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
		defer cancel()
		return nil, k.Load(ctx)
	})
	return err
}

// reloadEvery lets a process notice changes by others within five seconds, with time for a slow response.
const reloadEvery = 3 * time.Second

// Run reloads and maintains the keys until ctx ends. Loaded keys stay in use while the store does not respond.
func (k *Keyring) Run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(reloadEvery)
	defer ticker.Stop()
	for {
		if err := k.Update(ctx); err != nil && ctx.Err() == nil {
			log.Warn("signing keys not reloaded", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Update reloads the keys, rotates the current one if it is due, and removes those whose tokens have expired.
func (k *Keyring) Update(ctx context.Context) error {
	stored, err := k.load(ctx)
	if err != nil {
		return err
	}
	if due, err := k.maintenance(time.Now(), stored); err != nil || len(due.Moves) == 0 {
		return err
	}
	return k.change(ctx, k.maintenance)
}

// Current returns the private key that signs now. keyIDs are the keys that Postgres has and that are not removed, if
// the caller has read them: if the current key is missing among them, Current returns the next one, and if that is
// missing too, it loads the keys and returns the current one. It returns ErrNoKey, or an error that wraps
// store.ErrUnavailable.
func (k *Keyring) Current(ctx context.Context, keyIDs ...string) (accesstoken.SigningKey, error) {
	s := k.loaded.Load()
	if s == nil {
		return accesstoken.SigningKey{}, ErrNoKey
	}
	for _, key := range s.signers {
		if len(keyIDs) == 0 || slices.Contains(keyIDs, key.KeyID()) {
			return key, nil
		}
	}
	if err := k.loadOnce(ctx); err != nil {
		return accesstoken.SigningKey{}, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return k.loaded.Load().signers[0], nil
}

// Public returns the keys that verify tokens; none before the first Load.
func (k *Keyring) Public() *accesstoken.Keys {
	if s := k.loaded.Load(); s != nil {
		return s.public
	}
	return accesstoken.NewKeys(jose.JSONWebKeySet{})
}

// JWKS returns the public keys as a JSON document (RFC 7517, section 5).
func (k *Keyring) JWKS() ([]byte, error) {
	if s := k.loaded.Load(); s != nil {
		return s.json, nil
	}
	return nil, ErrNoKey
}

func (k *Keyring) adopt(stored []StoredKey) error {
	next, published := &snapshot{}, jose.JSONWebKeySet{}
	for _, one := range stored {
		var public jose.JSONWebKey
		if err := public.UnmarshalJSON(one.Public); err != nil {
			return fmt.Errorf("public key %s: %w", one.KID, err)
		}
		published.Keys = append(published.Keys, public)
		if one.State != Current && one.State != Next {
			continue
		}
		private, err := k.private(one)
		switch {
		case one.State == Next && err == nil:
			next.signers = append(next.signers, private)
		case one.State == Current && err != nil:
			return err
		case one.State == Current:
			next.signers = slices.Insert(next.signers, 0, private)
		}
	}
	if _, signing := find(stored, Current); !signing {
		return ErrNoKey
	}
	var err error
	if next.json, err = json.Marshal(published); err != nil {
		return fmt.Errorf("encode JWKS: %w", err)
	}
	if last := k.loaded.Load(); last != nil && bytes.Equal(last.json, next.json) {
		next.public = last.public // keeps its cache of verified tokens
		if last.signers[0].KeyID() == next.signers[0].KeyID() {
			next.signers[0] = last.signers[0] // keeps what crypto/ecdsa has precomputed
		}
	} else {
		next.public = accesstoken.NewKeys(published)
	}
	k.loaded.Store(next)
	return nil
}

// private returns the private half of a key that may sign.
func (k *Keyring) private(one StoredKey) (key accesstoken.SigningKey, err error) {
	raw, err := k.open(one)
	if err != nil {
		return accesstoken.SigningKey{}, err
	}
	var private jose.JSONWebKey
	if err = private.UnmarshalJSON(raw); err == nil {
		key, err = accesstoken.NewSigningKey(private)
	}
	if err != nil {
		return accesstoken.SigningKey{}, fmt.Errorf("signing key %s: %w", one.KID, err)
	}
	return key, nil
}

// open returns the private half of a key.
func (k *Keyring) open(one StoredKey) ([]byte, error) {
	raw, err := k.box.OpenBytes(one.Sealed)
	if err != nil {
		return nil, fmt.Errorf("signing key %s is sealed with a key that is not in ALMONER_KEYS: %w", one.KID, err)
	}
	return raw, nil
}

// missing is the Decision to add the keys that a complete set lacks: a current one, a next one.
func (k *Keyring) missing(_ time.Time, stored []StoredKey) (change Change, err error) {
	for _, state := range []State{Current, Next} {
		if _, exists := find(stored, state); exists {
			continue
		}
		added, err := k.generate(state)
		if err != nil {
			return Change{}, err
		}
		change.Adds = append(change.Adds, added)
	}
	return change, nil
}

func (k *Keyring) generate(state State) (StoredKey, error) {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return StoredKey{}, fmt.Errorf("generate signing key: %w", err)
	}
	private := jose.JSONWebKey{Key: raw, Algorithm: string(accesstoken.Algorithm), Use: "sig"}
	thumbprint, err := private.Thumbprint(crypto.SHA256) // RFC 7638
	if err != nil {
		return StoredKey{}, fmt.Errorf("name signing key: %w", err)
	}
	private.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	publicJSON, err1 := private.Public().MarshalJSON()
	privateJSON, err2 := private.MarshalJSON()
	if err := errors.Join(err1, err2); err != nil {
		return StoredKey{}, fmt.Errorf("encode signing key: %w", err)
	}
	return StoredKey{KID: private.KeyID, Public: publicJSON, Sealed: k.box.SealBytes(privateJSON), State: state}, nil
}
