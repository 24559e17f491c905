package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Store stores registered clients. Its errors are ErrUnknown, ErrTooMany and audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable. Each change checks the event's authorization in its transaction.
type Store interface {
	// Client reads a client without its secrets.
	Client(ctx context.Context, id uuid.UUID) (Client, error)
	// SaveClient stores a client with the hash of its first secret, if it has one. It returns false if there is or was
	// a client with its identifier.
	SaveClient(ctx context.Context, c Client, secretHash []byte, event audit.Event) (bool, error)
	// ReplaceSecret gives a client a new secret. The previous one stays valid for overlap.
	ReplaceSecret(
		ctx context.Context, workspaceID, id uuid.UUID, hash []byte, overlap time.Duration, event audit.Event,
	) error
	// DeleteClient deletes a client of the workspace or, for an operator, any client, and ends its grants, in one
	// transaction.
	DeleteClient(
		ctx context.Context, workspaceID, id uuid.UUID, event audit.Event,
	) (useraccount.EndedCredentials, error)
}

// A Registry registers and changes the clients of workspaces, for users and operators. It is safe for concurrent use.
type Registry struct {
	Store Store
	// PropagateRevocation propagates the ends of grants to Redis.
	PropagateRevocation func(ctx context.Context, ended []useraccount.EndedGrant)
	Now                 func() time.Time
	Random              io.Reader
}

// ErrExists reports that the identifier of a new client is in use, or was. Nothing was changed, and the secret must not
// be shown.
var ErrExists = errors.New("the id of the new client is already in use")

// SecretOverlap is how long a replaced secret still works (contract, section 5).
const SecretOverlap = 24 * time.Hour

// NewSecret returns a secret for a client of this kind with the hash to store, or none if the kind is public.
func NewSecret(kind Kind, random io.Reader) (secret credential.Secret, hash []byte, err error) {
	if kind.Traits().Public {
		return "", nil, nil
	}
	if secret, err = credential.ClientSecret.New(random); err != nil {
		return "", nil, fmt.Errorf("create client secret: %w", err)
	}
	return secret, credential.Hash(secret.Reveal()), nil
}

// event returns the event of a change of a client, which needs account:api:access and the permissions in more.
func event(by audit.Actor, action audit.Action, id uuid.UUID, detail map[string]any, more perm.Set) audit.Event {
	return by.Event(action, "client:"+id.String(), detail, more.Union(perm.NewSet(perm.AccountAPIAccess)))
}

// Own reads a client of the actor's workspace or, for an operator, any client. It returns ErrUnknown.
func (r *Registry) Own(ctx context.Context, by audit.Actor, id uuid.UUID) (Client, error) {
	c, err := r.Store.Client(ctx, id)
	if err == nil && c.WorkspaceID != by.WorkspaceID && !by.Authorization.Operator {
		return Client{}, ErrUnknown
	}
	return c, err
}

// Register registers an accepted client with an identifier in the user's workspace, and returns it with its secret. It
// returns ErrExists or ErrTooMany.
func (r *Registry) Register(
	ctx context.Context, by audit.Actor, c Client, detail map[string]any,
) (Client, credential.Secret, error) {
	c.WorkspaceID, c.CreatedBy = by.WorkspaceID, &by.UserID
	c.CreatedAt = r.Now().UTC().Truncate(time.Microsecond)
	secret, hash, err := NewSecret(c.Kind, r.Random)
	if err != nil {
		return Client{}, "", err
	}
	saved, err := r.Store.SaveClient(ctx, c, hash, event(by, audit.ClientRegistered, c.ID, detail, c.Required))
	if err == nil && !saved {
		err = ErrExists
	}
	if err != nil {
		return Client{}, "", err
	}
	return c, secret, nil
}

// ReplaceSecret gives a client a new secret. The previous one works for SecretOverlap, or no longer if expireOld is
// set. It returns a *Refusal for a public client.
func (r *Registry) ReplaceSecret(
	ctx context.Context, by audit.Actor, c Client, expireOld bool, detail map[string]any,
) (credential.Secret, error) {
	if c.Kind.Traits().Public {
		return "", &Refusal{Message: "A connector is a public client and has no secret."}
	}
	secret, hash, err := NewSecret(c.Kind, r.Random)
	if err != nil {
		return "", err
	}
	overlap := SecretOverlap
	if expireOld {
		overlap = 0
	}
	by.WorkspaceID = c.WorkspaceID
	replaced := event(by, audit.ClientSecretReplaced, c.ID, detail, nil)
	if err := r.Store.ReplaceSecret(ctx, c.WorkspaceID, c.ID, hash, overlap, replaced); err != nil {
		return "", err
	}
	return secret, nil
}

// Delete deletes a client of the actor's workspace or, for an operator, any client, and ends its grants. It returns
// ErrUnknown.
func (r *Registry) Delete(
	ctx context.Context, by audit.Actor, id uuid.UUID, detail map[string]any,
) (useraccount.EndedCredentials, error) {
	ended, err := r.Store.DeleteClient(ctx, by.WorkspaceID, id, event(by, audit.ClientDeleted, id, detail, nil))
	if err != nil {
		return useraccount.EndedCredentials{}, err
	}
	r.PropagateRevocation(ctx, ended.Grants)
	return ended, nil
}
