package engine

import (
	"context"
	"time"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/accesstoken"
)

// Signer holds the key that signs access tokens now.
type Signer interface {
	Current(ctx context.Context) (accesstoken.SigningKey, error)
}

// Deps are what an Engine works with.
type Deps struct {
	Issuer       string
	RESTResource string   // {base_url}/v1, that of confidential clients
	Resources    []string // those that a client known by its document may ask for
	Clients      Clients
	Unknown      error             // the error by which Clients says that there is no such client
	Documents    Documents         // nil: no client is known by a document
	Assertions   AssertionVerifier // nil: no client signs
	Grants       *grant.Service
	Signer       Signer
}

// An Engine is safe for concurrent use.
type Engine struct {
	Deps
	authorize *fosite.Fosite
	token     *fosite.Fosite
}

// New wires fosite: exact scope comparison, no audience parameter, no entropy rule of its own for state, and at the
// token endpoint our client authentication and our two handlers alone.
func New(d Deps) *Engine {
	if d.Documents == nil {
		d.Documents = noDocuments{}
	}
	if d.Assertions == nil {
		d.Assertions = noAssertions{}
	}
	e := &Engine{Deps: d}
	config := func() *fosite.Config {
		return &fosite.Config{
			ScopeStrategy:                 fosite.ExactScopeStrategy,
			AudienceMatchingStrategy:      fosite.ExactAudienceMatchingStrategy,
			RefreshTokenScopes:            []string{},
			MinParameterEntropy:           1,
			AuthorizeCodeLifespan:         client.CodeLife,
			AccessTokenLifespan:           time.Hour,
			DisableRefreshTokenValidation: true,
			EnforcePKCEForPublicClients:   true,
		}
	}
	e.authorize = &fosite.Fosite{Store: noStorage{}, Config: config()}
	tokens := config()
	tokens.ClientAuthenticationStrategy = e.authenticate
	tokens.TokenEndpointHandlers = fosite.TokenEndpointHandlers{&codeHandler{e}, &refreshHandler{e}}
	e.token = &fosite.Fosite{Store: noStorage{}, Config: tokens}
	return e
}
