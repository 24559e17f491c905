package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/shared/rest"
)

// A Key is a signing key without its key material.
type Key struct {
	KID       string     `json:"kid"`
	State     string     `json:"state"`
	Activated *time.Time `json:"activatedAt"`
	Retired   *time.Time `json:"retiredAt"`
	Created   rest.Time  `json:"createdAt"`
}

func (k Key) cells() []cell {
	return []cell{
		{"KID", k.KID}, {"STATE", k.State}, {"CREATED", k.Created}, {"SIGNS SINCE", k.Activated},
		{"RETIRED", k.Retired},
	}
}

// ListKeys lists the published keys, oldest first.
type ListKeys struct{}

func (ListKeys) run(ctx context.Context, s *Service) (Result, error) {
	stored, err := s.Keys.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys := make(List[Key], len(stored))
	for i, k := range stored {
		keys[i] = Key{k.KID, string(k.State), k.Activated, k.Retired, rest.Time(k.Created)}
	}
	return keys, nil
}

// ring returns the key ring, with its first keys created.
func (s *Service) ring(ctx context.Context) (*keyring.Keyring, error) {
	if s.Keyring == nil {
		return nil, refuse("ALMONER_KEYS is not set: it is needed to decrypt signing keys")
	}
	return s.Keyring, s.Keyring.Load(ctx)
}

// RotateKeys makes the next key sign.
type RotateKeys struct{}

func (RotateKeys) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	kid, err := ring.Rotate(ctx, audit.Operator)
	return Outcome{
		"Every process signs with the key " + kid + " within 5 seconds. The previous key stays published until its " +
			"last token has expired.",
		map[string]any{"kid": kid},
	}, err
}

// RemoveKey removes a key at once, even the current one.
type RemoveKey struct {
	KID string `arg:"" name:"kid" help:"Id of the key."`
}

func (c RemoveKey) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	if err := ring.Remove(ctx, c.KID, audit.Operator); errors.Is(err, keyring.ErrUnknownKID) {
		return nil, refuse("there is no published key with that id: see keys list")
	} else if err != nil {
		return nil, err
	}
	signing, err := ring.Current(ctx)
	if err != nil {
		return nil, err
	}
	return Outcome{
		"Removed the key. Both services refuse its tokens from now on, and every process signs with " +
			signing.KeyID() + " within 5 seconds. Programs that verify tokens themselves may cache the key set for " +
			"5 minutes.",
		map[string]any{"removed": c.KID, "signing": signing.KeyID()},
	}, nil
}

// ResealKeys seals the private keys and the secrets of authenticator apps under the newest key of ALMONER_KEYS.
type ResealKeys struct{}

func (ResealKeys) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	n, err := ring.Reseal(ctx, audit.Operator)
	if err != nil {
		return nil, err
	}
	apps, err := s.Store.ResealAuthenticators(ctx)
	return Outcome{
		fmt.Sprintf("Resealed: %s and %s.", plural(n, "signing key"), plural(apps, "authenticator app")),
		map[string]any{"resealed": n, "authenticators": apps},
	}, err
}

// ShowRetention lists how long records are kept, and how many are due.
type ShowRetention struct{}

func (ShowRetention) run(ctx context.Context, s *Service) (Result, error) {
	return s.Retention.Show(ctx)
}

// RunRetention deletes the due records now and records their numbers in one audit event.
type RunRetention struct {
	DryRun bool `name:"dry-run" help:"Delete nothing; show what is due."`
}

func (c RunRetention) run(ctx context.Context, s *Service) (Result, error) {
	if c.DryRun {
		return s.Retention.Show(ctx)
	}
	all, failed := s.Retention.DeleteAll(ctx)
	if counts := all.Counts(); len(counts) > 0 {
		e := audit.Event{
			Actor:   audit.Operator,
			Action:  audit.RetentionRun,
			Subject: "retention",
			Detail:  map[string]any{"deleted": counts},
		}
		if err := s.Audit.Record(ctx, e); err != nil {
			return nil, fmt.Errorf("record the run: %w", err)
		}
	}
	return all, failed
}
