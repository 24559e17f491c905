// Package client answers: what is this OAuth client, and what follows from its kind?
//
// There are three kinds, and everything that differs between them stands in one table (traits.go).
package client

import (
	"crypto/subtle"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Client is a registered OAuth client application (spec 2.2).
type Client struct {
	ID         uuid.UUID
	Kind       Kind
	TenantID   uuid.UUID // the workspace that registered it; zero for a service
	Name       string
	Redirects  []string // exact redirect URIs
	Required   perm.Set // requiredPermissions
	Platform   string   // connectors: claude or chatgpt
	Resource   string   // connectors: the one resource indicator (RFC 8707) it may ask for
	AuthMethod AuthMethod
	CreatedBy  *uuid.UUID
	CreatedAt  time.Time
	Secrets    [][]byte // SHA-256 of each live secret
}

// MayRedirectTo compares byte by byte: no case folding, no loopback exception, no normalisation (contract, section 4).
func (c Client) MayRedirectTo(uri string) bool {
	for _, registered := range c.Redirects {
		if registered == uri {
			return true
		}
	}
	return false
}

// SecretMatches compares with every live secret, in constant time.
func (c Client) SecretMatches(secret credential.Secret) bool {
	hash, match := credential.Hash(secret.Reveal()), 0
	for _, stored := range c.Secrets {
		match |= subtle.ConstantTimeCompare(stored, hash)
	}
	return match == 1
}
