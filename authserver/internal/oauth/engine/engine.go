package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
)

// A Signer returns the key that signs access tokens now.
type Signer interface {
	Current(ctx context.Context) (accesstoken.SigningKey, error)
	// CurrentAmong is like Current, for a token request that has read from Postgres which keys are not removed. It
	// returns keyring.ErrNoKey, or an error that wraps store.ErrUnavailable.
	CurrentAmong(ctx context.Context, keyIDs []string) (accesstoken.SigningKey, error)
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

	// known are clients without authentication that sent a valid request before. Their data may be outdated: every
	// decision checks the client again.
	known *lru.Cache[uuid.UUID, *client.Client]
	// refused are grants whose last request was refused. Their next request reads a snapshot first: it will probably be
	// refused as well, and a direct decision that is undone costs more than a snapshot.
	refused *lru.Cache[uuid.UUID, struct{}]
}

// Limits of the caches of an Engine.
const (
	maxKnown   = 1024
	maxRefused = 8192
)

// New configures fosite: exact scope comparison, no audience parameter, no entropy rule for state, and at the token
// endpoint only the client authentication and the handlers of this package.
func New(d Deps) *Engine {
	if d.Documents == nil {
		d.Documents = noDocuments{}
	}
	if d.Assertions == nil {
		d.Assertions = noAssertions{}
	}
	known, _ := lru.New[uuid.UUID, *client.Client](maxKnown) // fails only if the size is not positive
	refused, _ := lru.New[uuid.UUID, struct{}](maxRefused)
	e := &Engine{Deps: d, known: known, refused: refused}
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
