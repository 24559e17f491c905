// Package client answers: what is this OAuth client, and what follows from its kind?
//
// There are three kinds, and everything that differs between them stands in one table (traits.go).
package client

import (
	"crypto/subtle"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Client is an OAuth client application (spec 2.2): one that a workspace has registered, or one that is known by its
// metadata document (document.go) and belongs to no workspace.
type Client struct {
	ID   uuid.UUID
	Kind Kind
	// the workspace that registered it; zero for a service, and for a client known by its document
	WorkspaceID uuid.UUID
	Name        string
	Redirects   []string // exact redirect URIs
	Required    perm.Set // requiredPermissions
	Platform    string   // connectors: claude or chatgpt
	// connectors: the one resource indicator (RFC 8707) it may ask for; "": any of this deployment's
	Resource   string
	AuthMethod AuthMethod
	CreatedBy  *uuid.UUID
	CreatedAt  time.Time
	Secrets    [][]byte // SHA-256 of live secrets: those that the store was asked for, which is at most two
	Address    string   // of its metadata document, which is its client_id; "" for a registered client
	Keys       []byte   // the JWK set that PrivateKeyJWT is verified by
	KeysURL    string   // where that set is read, "" where the document holds it
}

// PublicID is what the client is called wherever client_id is said.
func (c Client) PublicID() string {
	if c.Address != "" {
		return c.Address
	}
	return c.ID.String()
}

// Domain is the host of the client's document, "" for a registered client.
func (c Client) Domain() string {
	host, _ := ParseAddress(c.Address)
	return host
}

// At returns the client as it may ask for access to the resource with this identifier: a connector has no permission
// there that the resource cannot use (contract, section 5).
func (c Client) At(resource string) Client {
	if c.Kind == Connector {
		c.Required = c.Required.Usable(resource)
	}
	return c
}

// MayRedirectTo compares byte by byte: no case folding, no normalisation (contract, section 4). A client that is known
// by its document has any port of the user's own computer where it lists one; a registered client has not.
func (c Client) MayRedirectTo(uri string) bool {
	return slices.ContainsFunc(c.Redirects, func(listed string) bool {
		return listed == uri || (c.Address != "" && len(uri) <= maxRedirectLength && loopbackButForPort(listed, uri))
	})
}

// SecretHash is the hash by which a store finds the secret that a caller presents, nil if the caller presents none.
func SecretHash(secret credential.Secret) []byte {
	if secret == "" {
		return nil
	}
	return credential.Hash(secret.Reveal())
}

// SecretMatches compares with every secret that was read, in constant time.
func (c Client) SecretMatches(secret credential.Secret) bool {
	hash, match := credential.Hash(secret.Reveal()), 0
	for _, stored := range c.Secrets {
		match |= subtle.ConstantTimeCompare(stored, hash)
	}
	return match == 1
}
