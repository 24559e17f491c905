// Package client describes OAuth clients and what follows from their kind.
//
// There are three kinds. Everything that differs between them is in one table (Traits).
package client

import (
	"crypto/subtle"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

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
