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
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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
	Documents    *clientmetadata.Resolver
	Assertions   *clientmetadata.Verifier
	Grants       *grant.Service
	Signer       Signer
}

// An Engine processes authorization and token requests. It is safe for concurrent use.
type Engine struct {
	Deps
	fosite    fosite.Fosite                      // without the storage of a request
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
	e.fosite.Config = config
	e.storage = func(c client.Client) fosite.Storage {
		return oneClient{&fosite.DefaultClient{
			ID:           c.PublicID(),
			RedirectURIs: c.Redirects,
			Scopes:       c.Required.Strings(),
			Public:       c.Kind.Traits().Public,
		}}
	}
	return e
}

// Observe makes the engine call the observer after each token request. Call it before the first request.
func (e *Engine) Observe(observer func(context.Context, Outcome)) {
	e.observers = append(e.observers, observer)
}

// oneClient is the storage of an authorization request, for which this package has found and checked the client. It has
// no secret: fosite never compares one. fosite stores nothing. A token request needs no storage.
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

// A Dialect is the encoding of a token request (contract, section 3).
type Dialect int

// The dialects.
const (
	JSON Dialect = iota // the spec's body
	Form                // RFC 6749
)

// A TokenRequest is a token request of either dialect. Empty means missing (RFC 6749, section 3.2).
type TokenRequest struct {
	Dialect      Dialect
	Basic        bool // ClientID and ClientSecret came in an Authorization: Basic header
	OtherAuth    bool // the Authorization header had another scheme or was malformed
	GrantType    string
	ClientID     string
	ClientSecret credential.Secret
	Parameters   map[string]credential.Secret // by name; the grant types read them

	AssertionType string // of private_key_jwt (RFC 7523, section 2.2)
	Assertion     credential.Secret

	Sender grant.Sender // without Proof

	// IdempotencyKeys are the values of the header, of which there may be one (contract, section 3).
	IdempotencyKeys []credential.Secret
}

// Tokens is the response. Repeated is set only for a request with an Idempotency-Key.
type Tokens struct {
	grant.Issued
	Access    credential.Secret
	ExpiresIn time.Duration // whole seconds
	Scope     string
}

// A TokenError is a refusal that the client caused: 400, or 401 with a challenge if a Basic header failed.
type TokenError struct {
	Code        string
	Description string
	Challenge   bool
}

func (t *TokenError) Error() string { return t.Code + ": " + t.Description }

func tokenError(code, description string) *TokenError {
	return &TokenError{Code: code, Description: description}
}

// An exchange is the state of one token request while fosite processes it: the session of its access request.
type exchange struct {
	fosite.DefaultSession
	request  TokenRequest
	asked    grant.Request // what the request asks of the grant service
	forged   bool          // this server did not issue the code or refresh token
	snapshot grant.Snapshot
	direct   bool                   // snapshot has only a client that authenticated before
	key      accesstoken.SigningKey // that signs the access token
	ended    grant.Reason           // why the grant ended, by this request or before
	answer   Tokens
}

func exchangeOf(r fosite.Requester) *exchange { return r.GetSession().(*exchange) }

// An Outcome is a token request with its result.
type Outcome struct {
	Request TokenRequest
	Err     error // a *TokenError, an error that wraps store.ErrUnavailable, or nil

	exchange *exchange
}

// Token processes a token request, and shows the result to the observers. fosite authenticates the client and
// dispatches the request to its handler: it reads the grant type from the form, and the handlers find the rest of the
// request in the session. Token returns a *TokenError, or an error that wraps store.ErrUnavailable.
func (e *Engine) Token(ctx context.Context, request TokenRequest) (Tokens, error) {
	x := &exchange{request: request}
	x.asked.Sender = request.Sender
	x.asked.LoadKey = func(ctx context.Context, keyIDs []string) (err error) {
		x.key, err = e.Signer.Current(ctx, keyIDs...)
		return err
	}
	e.nameFromAssertion(&x.request)
	err := checkForm(&x.request)
	if err == nil {
		form := url.Values{"grant_type": {x.request.GrantType}}
		post := &http.Request{Method: http.MethodPost, Form: form, PostForm: form}
		var requester fosite.AccessRequester
		if requester, err = e.fosite.NewAccessRequest(ctx, post, x); err == nil {
			_, err = e.fosite.NewAccessResponse(ctx, requester)
		}
		if err != nil {
			err = mapTokenError(err)
		}
	}
	for _, observe := range e.observers {
		observe(ctx, Outcome{x.request, err, x})
	}
	return x.answer, err
}

// Length limits of an Idempotency-Key (contract, section 3). A thief of the token could guess a shorter key.
const (
	shortestKey = 16
	longestKey  = 255
)

// checkForm checks what can be checked without I/O.
func checkForm(r *TokenRequest) error {
	if r.GrantType == "" && r.Dialect == JSON {
		r.GrantType = grantTypes[0].name
	}
	if r.OtherAuth {
		return tokenError(
			"invalid_request",
			"Use only one authentication method. With Authorization: Basic, which requires a client registered for "+
				"client_secret_basic or client_secret_post, the body must have no client_secret and the same "+
				"client_id or none. Otherwise send the credentials only in the body.",
		)
	}
	missing := "grant_type"
	if r.GrantType != "" {
		t, known := grantTypeOf(r.GrantType)
		if !known {
			return tokenError("unsupported_grant_type", "grant_type must be "+strings.Join(GrantTypes(), " or ")+".")
		}
		missing = t.missing(*r)
	}
	if r.ClientID == "" {
		missing = "client_id"
	}
	if missing != "" {
		return tokenError("invalid_request", missing+" is required.")
	}
	valid := len(r.IdempotencyKeys) <= 1
	for _, key := range r.IdempotencyKeys {
		text := key.Reveal()
		valid = valid && len(text) >= shortestKey && len(text) <= longestKey &&
			!strings.ContainsFunc(text, func(c rune) bool { return c < '!' || c > '~' })
	}
	if !valid {
		return tokenError("invalid_request",
			"Idempotency-Key must be given once, as 16 to 255 visible ASCII characters.")
	}
	return nil
}

// mapTokenError unwraps this package's errors from fosite's, and replaces fosite's own errors with the contract's.
func mapTokenError(err error) error {
	if own, ok := errors.AsType[*TokenError](err); ok {
		return own
	}
	if refusal, ok := errors.AsType[*grant.Refusal](err); ok {
		return tokenError(cmp.Or(refusal.Code, "invalid_grant"), refusal.Message)
	}
	refused, byFosite := errors.AsType[*fosite.RFC6749Error](err)
	if byFosite && refused.CodeField < http.StatusInternalServerError {
		return tokenError("invalid_request", "The token request is not valid.")
	}
	return err
}

// issue signs the access token with the key that LoadKey has loaded, and fills in the response.
func (e *Engine) issue(x *exchange, issued grant.Issued) error {
	g, now := issued.Grant, issued.Now.Truncate(time.Second)
	expires := now.Add(g.Kind.Traits().AccessLife)
	if ends := g.Ends.Truncate(time.Second); expires.After(ends) {
		expires = ends // no access token outlives its grant (G4)
	}
	scope := g.Permissions
	if len(x.asked.Scope) > 0 {
		scope = scope.Intersect(x.asked.Scope)
	}
	if len(scope) < len(x.asked.Scope) { // a repeated request whose grant was narrowed meanwhile
		return tokenError("invalid_scope", "scope must contain only permissions that the grant has.")
	}
	access, err := accesstoken.Sign(x.key, accesstoken.Claims{
		Issuer:      e.Issuer,
		Subject:     g.UserID,
		Audience:    g.Resource,
		Expires:     expires,
		IssuedAt:    now,
		ID:          uuid.NewString(),
		ClientID:    x.snapshot.Client.PublicID(),
		Scope:       scope,
		WorkspaceID: g.WorkspaceID,
		GrantID:     g.ID,
	})
	if err != nil {
		return err
	}
	issued.Repeated = issued.Repeated && len(x.request.IdempotencyKeys) > 0
	x.answer = Tokens{
		Issued:    issued,
		Access:    access,
		ExpiresIn: expires.Sub(now),
		Scope:     scope.Scope(),
	}
	return nil
}
