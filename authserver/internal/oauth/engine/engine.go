package engine

import (
	"context"
	"time"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/accesstoken"
)

// A Signer returns the key that signs access tokens now.
type Signer interface {
	Current(ctx context.Context) (accesstoken.SigningKey, error)
}

// Deps are the dependencies of an Engine.
type Deps struct {
	Issuer       string
	RESTResource string   // {base_url}/v1, the resource of confidential clients
	Resources    []string // resources that a client known by its document may request
	Clients      Clients
	Documents    Documents         // nil if no client is known by a document
	Assertions   AssertionVerifier // nil if no client signs
	Grants       *grant.Service
	Signer       Signer
}

// An Engine processes authorization and token requests. It is safe for concurrent use.
type Engine struct {
	Deps
	authorize *fosite.Fosite
	token     *fosite.Fosite
}

// New configures fosite: exact scope comparison, no audience parameter, no entropy rule for state, and at the token
// endpoint only the client authentication and the handlers of this package.
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
	tokens.TokenEndpointHandlers = e.grantHandlers()
	e.token = &fosite.Fosite{Store: noStorage{}, Config: tokens}
	return e
}
