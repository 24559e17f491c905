// Package engine implements the OAuth protocol of the authorization and token endpoints.
//
// It is the only importer of fosite, and its API uses the types of packages grant, client and consent. fosite parses
// and checks the authorization request, dispatches the token request to the handler of its grant type, and its error
// values carry the codes. grant.Service makes the decisions that fosite would make outside a transaction (codes, PKCE,
// refresh tokens, revocation), through handlers that this package registers with fosite. fosite never writes a response
// and never sees a store.
//
//	GET /oauth/authorize   Identify (client, redirect URI, duplicates: a page) → login →
//	                       ParseAuthorization (the rest: a redirect)
//	POST …/oauth/token     Token (client → code or refresh token → access token)
package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
)

// A Signer returns the key that signs access tokens now; *keyring.Keyring implements it. keyIDs are the keys that are
// not removed, if a token request has read them from Postgres. The error is keyring.ErrNoKey or wraps
// store.ErrUnavailable.
type Signer interface {
	Current(ctx context.Context, keyIDs ...string) (accesstoken.SigningKey, error)
}

// Deps are the dependencies of an Engine.
type Deps struct {
	Issuer       string
	RESTResource string   // {base_url}/v1, the resource of confidential clients
	Resources    []string // resources that a client known by its document may request
	Clients      Clients
	Documents    Documents
	Assertions   *clientmetadata.Verifier
	Grants       *grant.Service
	Signer       Signer
}

// An Engine processes authorization and token requests. It is safe for concurrent use.
type Engine struct {
	Deps
	authorize fosite.Fosite // without the storage of a request
	token     *fosite.Fosite
	storage   func(client.Client) fosite.Storage // of an authorization request
	observers []func(context.Context, Outcome)

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
	known, _ := lru.New[uuid.UUID, *client.Client](maxKnown) // fails only if the size is not positive
	refused, _ := lru.New[uuid.UUID, struct{}](maxRefused)
	e := &Engine{Deps: d, known: known, refused: refused}
	config := &fosite.Config{
		ScopeStrategy:                 fosite.ExactScopeStrategy,
		AudienceMatchingStrategy:      fosite.ExactAudienceMatchingStrategy,
		RefreshTokenScopes:            []string{},
		MinParameterEntropy:           1,
		AuthorizeCodeLifespan:         client.CodeLife,
		AccessTokenLifespan:           time.Hour,
		DisableRefreshTokenValidation: true,
		EnforcePKCEForPublicClients:   true,
		ClientAuthenticationStrategy:  e.authenticate,
	}
	for _, t := range grantTypes {
		config.TokenEndpointHandlers = append(config.TokenEndpointHandlers, grantHandler{e, t})
	}
	e.authorize, e.token = fosite.Fosite{Config: config}, &fosite.Fosite{Config: config}
	e.storage = func(c client.Client) fosite.Storage { return oneClient{fositeClient(c)} }
	return e
}

// Observe makes the engine call the observer after each token request. Call it before the first request.
func (e *Engine) Observe(observer func(context.Context, Outcome)) {
	e.observers = append(e.observers, observer)
}

// fositeClient returns a client as fosite sees it, without a secret: fosite never compares one.
func fositeClient(c client.Client) *fosite.DefaultClient {
	return &fosite.DefaultClient{
		ID:           c.PublicID(),
		RedirectURIs: c.Redirects,
		Scopes:       c.Required.Strings(),
		Public:       c.Kind.Traits().Public,
	}
}

// oneClient is the storage of an authorization request, for which this package has found and checked the client. fosite
// stores nothing. A token request needs no storage.
type oneClient struct{ client *fosite.DefaultClient }

var _ fosite.Storage = oneClient{}

func (o oneClient) GetClient(_ context.Context, id string) (fosite.Client, error) {
	if o.client.GetID() == id {
		return o.client, nil
	}
	return nil, fosite.ErrNotFound
}

func (oneClient) ClientAssertionJWTValid(context.Context, string) error { return fosite.ErrNotFound }

func (oneClient) SetClientAssertionJWT(context.Context, string, time.Time) error {
	return fosite.ErrNotFound
}
