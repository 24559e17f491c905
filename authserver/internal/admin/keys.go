package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
)

// A Key is a signing key without its key material.
type Key struct {
	KID       string     `json:"kid"`
	State     string     `json:"state"`
	Created   time.Time  `json:"createdAt"`
	Activated *time.Time `json:"activatedAt"`
	Retired   *time.Time `json:"retiredAt"`
}

func (Key) columns() []string {
	return []string{"KID", "STATE", "CREATED", "SIGNS SINCE", "RETIRED"}
}

func (k Key) cells() []string {
	return []string{k.KID, k.State, stamp(&k.Created), stamp(k.Activated), stamp(k.Retired)}
}

// ListKeys lists the published keys, oldest first.
func (d *Service) ListKeys(ctx context.Context) (Result, error) {
	stored, err := d.Keys.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys := make(List[Key], len(stored))
	for i, k := range stored {
		keys[i] = Key{k.KID, string(k.State), k.Created, k.Activated, k.Retired}
	}
	return keys, nil
}

// ring returns the key ring, with its first keys created.
func (d *Service) ring(ctx context.Context) (*keyring.Keyring, error) {
	if d.Keyring == nil {
		return nil, refuse("ALMONER_KEYS is not set: it is needed to decrypt signing keys")
	}
	return d.Keyring, d.Keyring.Load(ctx)
}

// RotateKeys makes the next key sign.
func (d *Service) RotateKeys(ctx context.Context) (Result, error) {
	ring, err := d.ring(ctx)
	if err != nil {
		return nil, err
	}
	kid, err := ring.Rotate(ctx, Actor)
	if err != nil {
		return nil, err
	}
	return Outcome{
		"Every process signs with the key " + kid + " within 5 seconds. The previous key stays published until its " +
			"last token has expired.",
		map[string]any{"kid": kid},
	}, nil
}

// RemoveKey removes a key at once, even the current one.
func (d *Service) RemoveKey(ctx context.Context, kid string) (Result, error) {
	ring, err := d.ring(ctx)
	if err != nil {
		return nil, err
	}
	if err := ring.Remove(ctx, kid, Actor); errors.Is(err, keyring.ErrUnknownKID) {
		return nil, refuse("there is no published key with that id: see keys list")
	} else if err != nil {
		return nil, err
	}
	signing, err := ring.Current(ctx)
	if err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf(
			"Removed the key. Both services refuse its tokens from now on, and every process signs with %s within "+
				"5 seconds. Programs that verify tokens themselves may cache the key set for 5 minutes.",
			signing.KeyID(),
		),
		map[string]any{"removed": kid, "signing": signing.KeyID()},
	}, nil
}

// ResealKeys seals the private keys and the secrets of authenticator apps under the newest key of ALMONER_KEYS.
func (d *Service) ResealKeys(ctx context.Context) (Result, error) {
	ring, err := d.ring(ctx)
	if err != nil {
		return nil, err
	}
	n, err := ring.Reseal(ctx, Actor)
	if err != nil {
		return nil, err
	}
	apps, err := d.Store.ResealAuthenticators(ctx)
	if err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf(
			"Resealed: %s and %s.",
			plural(n, "signing key", "signing keys"),
			plural(apps, "authenticator app", "authenticator apps"),
		),
		map[string]any{"resealed": n, "authenticators": apps},
	}, nil
}
