// Package client describes OAuth clients and what follows from their kind.
//
// There are three kinds. Everything that differs between them is in one table (Traits).
package client

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Client is an OAuth client application (spec 2.2). It is either registered by a workspace, or known by its metadata
// document (document.go) and belongs to no workspace.
type Client struct {
	ID   uuid.UUID
	Kind Kind
	// WorkspaceID is the workspace that registered the client. It is zero for a service and for a client known by its
	// document.
	WorkspaceID uuid.UUID
	Name        string
	Redirects   []string // exact redirect URIs
	Required    perm.Set // requiredPermissions
	Platform    string   // connectors: "claude" or "chatgpt"
	// Resource is the one resource indicator (RFC 8707) that a connector may request. "" allows any of this
	// deployment's.
	Resource   string
	AuthMethod AuthMethod
	CreatedBy  *uuid.UUID
	CreatedAt  time.Time
	Secrets    [][]byte // SHA-256 hashes of the live secrets that the store returned, at most two
	Address    string   // URL of its metadata document, which is its client_id; "" for a registered client
	Keys       []byte   // JWK set that verifies a PrivateKeyJWT assertion
	KeysURL    string   // where that set is fetched; "" if the document contains it
}

// ErrUnknown reports that the client does not exist or was deleted.
var ErrUnknown = errors.New("no such client")

// MaxInWorkspace is the number of clients of a workspace from which on it cannot register another. Lists of clients are
// read in one query.
const MaxInWorkspace = 1000

// ErrTooMany reports that the workspace has MaxInWorkspace clients.
var ErrTooMany = errors.New("the workspace has too many clients")

// PublicID returns the client's client_id.
func (c Client) PublicID() string {
	if c.Address != "" {
		return c.Address
	}
	return c.ID.String()
}

// Domain returns the host of the client's document, or "" for a registered client.
func (c Client) Domain() string {
	host, _ := ParseAddress(c.Address)
	return host
}

// At returns the client as it may request access to the resource with this identifier: a connector has no permission
// that the resource cannot use (contract, section 5).
func (c Client) At(resource string) Client {
	if c.Kind == Connector {
		c.Required = c.Required.Usable(resource)
	}
	return c
}

// MayRedirectTo compares byte by byte, without case folding or normalisation (contract, section 4). A client that is
// known by its document may use any loopback port for a loopback URI that it lists. A registered client may not.
func (c Client) MayRedirectTo(uri string) bool {
	return slices.ContainsFunc(c.Redirects, func(listed string) bool {
		return listed == uri || (c.Address != "" && len(uri) <= maxRedirectLength && loopbackButForPort(listed, uri))
	})
}

// SecretHash returns the hash by which a store finds the presented secret, or nil if the caller presents none.
func SecretHash(secret credential.Secret) []byte {
	if secret == "" {
		return nil
	}
	return credential.Hash(secret.Reveal())
}

// SecretMatches compares the secret with every stored hash in constant time.
func (c Client) SecretMatches(secret credential.Secret) bool {
	hash, match := credential.Hash(secret.Reveal()), 0
	for _, stored := range c.Secrets {
		match |= subtle.ConstantTimeCompare(stored, hash)
	}
	return match == 1
}

// A Kind is the kind of software that a client is.
type Kind string

// The kinds (contract, sections 2 to 5).
const (
	Confidential Kind = "confidential"
	Connector    Kind = "connector"
	Service      Kind = "service"
)

// An AuthMethod is how a client authenticates at the token endpoint (RFC 7591, section 2, and the spec's own JSON
// body).
type AuthMethod string

// The methods. SecretJSON is the spec's body (4.3) and the default of confidential clients. PrivateKeyJWT (RFC 7523) is
// only for clients that are known by their documents.
const (
	AuthNone      AuthMethod = "none"
	SecretJSON    AuthMethod = "client_secret_json"
	SecretPost    AuthMethod = "client_secret_post"
	SecretBasic   AuthMethod = "client_secret_basic"
	PrivateKeyJWT AuthMethod = "private_key_jwt"
)

// CodeLife is the lifetime of an authorization code (contract, section 3).
const CodeLife = 60 * time.Second

// Traits are the properties of a kind.
type Traits struct {
	Public         bool          // has no secret
	Authorizes     bool          // may send users to the consent page
	PKCERequired   bool          // S256 challenge and verifier (RFC 7636)
	ResourceNeeded bool          // must name its resource (RFC 8707)
	Refreshes      bool          // gets rotating refresh tokens
	NeedsLLM       bool          // works only while the workspace's LLM integration is on
	AllOrNothing   bool          // the user must hold every required permission
	AccessLife     time.Duration // maximum lifetime of an access token
	GrantLife      time.Duration // lifetime of a grant, from consent
}

// AllowedBy reports whether clients of this kind may act in a workspace whose LLM integration is on, or off (spec 4.4).
func (k Kind) AllowedBy(llmIntegration bool) bool { return llmIntegration || !k.Traits().NeedsLLM }

// traits is the table of the kinds. A confidential grant ends CodeLife later than its access token could end at the
// earliest. The token then always lives 90 days (spec 8), no matter when within its minute the code is exchanged.
var traits = map[Kind]Traits{
	Confidential: {
		Authorizes:   true,
		AllOrNothing: true,
		AccessLife:   90 * 24 * time.Hour,
		GrantLife:    90*24*time.Hour + CodeLife,
	},
	Connector: {
		Public:         true,
		Authorizes:     true,
		PKCERequired:   true,
		ResourceNeeded: true,
		Refreshes:      true,
		NeedsLLM:       true,
		AccessLife:     time.Hour,
		GrantLife:      30 * 24 * time.Hour,
	},
	Service: {},
}

// Traits returns the kind's row of the table. An unknown kind has the zero Traits, which allow nothing.
func (k Kind) Traits() Traits { return traits[k] }

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
