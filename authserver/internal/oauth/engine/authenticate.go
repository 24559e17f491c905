package engine

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/google/uuid"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/net/web"
)

// authenticate is fosite's client authentication. If the request can be decided directly, it returns a client that
// authenticated before. The decision then checks it again.
func (e *Engine) authenticate(ctx context.Context, _ *http.Request, _ url.Values) (fosite.Client, error) {
	x := exchangeOf(ctx.Value(fosite.AccessRequestContextKey).(fosite.AccessRequester))
	r := x.request
	t, _ := grantTypeOf(r.GrantType)
	if t.presents != "" {
		var err error
		x.asked.Token, err = e.Grants.Tokens.Read(t.kind, r.Parameters[t.presents].Reveal())
		x.forged = err != nil
	}
	web.RecordGrant(ctx, x.asked.Token.GrantID)
	id, err := accesstoken.ClientID(r.ClientID)
	if err != nil {
		return nil, unknownClient(r)
	}
	if t.presents != "" && !x.forged && r.Dialect == Form && !r.Basic && r.ClientSecret == "" && r.Assertion == "" {
		c, known := e.known.Get(id)
		if known && e.hasPublicID(r.ClientID, c) && !e.refused.Contains(x.asked.Token.GrantID) {
			x.snapshot, x.direct = grant.Snapshot{Client: c}, true
		}
	}
	if !x.direct {
		if err := e.identify(ctx, x, id); err != nil {
			return nil, err
		}
	}
	return &fosite.DefaultClient{ID: r.ClientID}, nil // fosite needs only the id
}

// identify authenticates the client. It reads, in one statement, everything that the rest of the request needs. A store
// that does not respond is an error, not an unknown client. A request with a forged code or token is refused in any
// case (see PopulateTokenEndpointResponse). It therefore uses recently read data of its client to describe the refusal,
// so a flood of garbage causes no flood of reads.
func (e *Engine) identify(ctx context.Context, x *exchange, id uuid.UUID) (err error) {
	r := x.request
	if x.forged {
		var recent client.Client
		if recent, err = e.Clients.RecentClient(ctx, id); err == nil {
			x.snapshot.Client = &recent
		}
	} else {
		x.snapshot, err = e.Grants.Snapshot(ctx, id, x.asked.Token.Key(), client.SecretHash(r.ClientSecret))
	}
	if err != nil && !errors.Is(err, client.ErrUnknown) {
		return err
	}
	if x.snapshot.Client == nil || x.snapshot.Client.AuthMethod != client.AuthNone {
		e.known.Remove(id)
	}
	if x.snapshot.Client == nil {
		refused := unknownClient(r)
		if g := x.snapshot.Grant; g != nil && g.ClientID == id && g.Reason == grant.ClientDeleted {
			refused.Description = g.Reason.Words(g.RevokedAt)
		}
		return refused
	}
	if !e.hasPublicID(r.ClientID, x.snapshot.Client) {
		return unknownClient(r)
	}
	if err := e.verify(ctx, r, *x.snapshot.Client); err != nil {
		return err
	}
	if x.snapshot.Client.AuthMethod == client.AuthNone {
		e.known.Add(id, x.snapshot.Client)
	}
	x.recordCaller(ctx)
	return nil
}

// recordCaller records for the access log which client, and whose grant, the request is for.
func (x *exchange) recordCaller(ctx context.Context) {
	web.RecordCaller(ctx, web.Caller{Client: x.snapshot.Client.ID})
	if g := x.snapshot.Grant; g != nil && g.ClientID == x.snapshot.Client.ID {
		RecordGrant(ctx, *g)
	}
}

// RecordGrant records the grant for which the request of ctx is.
func RecordGrant(ctx context.Context, g grant.Grant) {
	web.RecordCaller(ctx, web.Caller{Credential: g.ID, Workspace: g.WorkspaceID, User: g.UserID, Client: g.ClientID})
}

func unknownClient(r TokenRequest) *TokenError {
	return &TokenError{
		Code:        "invalid_client",
		Description: "The client is unknown, or its secret is wrong or missing.",
		Challenge:   r.Basic,
	}
}

// verify checks that the request has the form required for its kind of client, and authenticates the client. A client
// that signs must send a valid assertion. For other clients an assertion is an unknown parameter. Every failure of an
// assertion that the client caused is invalid_client.
func (e *Engine) verify(ctx context.Context, r TokenRequest, c client.Client) error {
	traits := c.Kind.Traits()
	switch {
	case !traits.Authorizes && !c.SecretMatches(r.ClientSecret):
		return unknownClient(r)
	case !traits.Authorizes:
		return tokenError("unauthorized_client",
			"A service client has no grants. It can introspect tokens, but cannot exchange or revoke them.")
	case traits.Public && r.Basic:
		return tokenError("invalid_request", "A connector has no secret. Remove the Authorization header.")
	case traits.Public && r.Dialect == JSON:
		return tokenError("invalid_request", "A connector must send application/x-www-form-urlencoded.")
	case !traits.Public:
		if refused := checkSecret(r, c); refused != nil {
			return refused
		}
	}
	if c.AuthMethod != client.PrivateKeyJWT {
		return nil
	}
	if r.Assertion == "" || r.AssertionType != jwtBearer {
		return tokenError("invalid_client",
			"This client must authenticate with client_assertion and client_assertion_type "+jwtBearer+".")
	}
	err := e.Assertions.Verify(ctx, c, r.Assertion)
	if refused, ok := errors.AsType[*client.AssertionError](err); ok {
		return tokenError("invalid_client", refused.Message)
	}
	return err
}

// checkSecret authenticates a confidential client. The spec's JSON body is for clients of SecretJSON. Those of
// SecretPost and SecretBasic may use either of the two, because libraries differ in which one they use (contract,
// section 3).
func checkSecret(r TokenRequest, c client.Client) error {
	standard := c.AuthMethod == client.SecretPost || c.AuthMethod == client.SecretBasic
	refused := unknownClient(r)
	switch {
	case r.Basic && !standard:
		refused.Challenge = false // the header could not succeed
		if c.SecretMatches(r.ClientSecret) {
			refused.Description = "This client is registered for client_secret_json: send its secret in the JSON " +
				"body, without an Authorization header. To use the header, register the client for client_secret_basic."
		}
		return refused
	case !c.SecretMatches(r.ClientSecret):
		return refused
	case r.Dialect == Form && !standard:
		refused.Description = "This client is registered for client_secret_json: send application/json. To send a " +
			"form, register the client for client_secret_post or client_secret_basic."
		return refused
	}
	return nil
}

// NamesClient reports whether the request says which client sent it, or tries to.
func (t TokenRequest) NamesClient() bool {
	return t.OtherAuth || t.Basic || t.ClientID != "" || t.ClientSecret != "" || t.Assertion != ""
}

// Authenticate returns the client that sent a request to an endpoint other than the token endpoint, by the same rules.
// It reads the request's dialect, Authorization header, client id and secret. It returns a *TokenError, or an error
// that wraps store.ErrUnavailable.
func (e *Engine) Authenticate(ctx context.Context, r TokenRequest) (client.Client, error) {
	if r.OtherAuth {
		return client.Client{}, checkForm(&r) // returns the error for OtherAuth
	}
	e.nameFromAssertion(&r)
	if r.ClientID == "" {
		return client.Client{}, tokenError("invalid_request", "client_id is required.")
	}
	id, err := accesstoken.ClientID(r.ClientID)
	if err != nil {
		return client.Client{}, unknownClient(r)
	}
	c, err := e.Clients.ClientWithSecret(ctx, id, client.SecretHash(r.ClientSecret))
	if errors.Is(err, client.ErrUnknown) || (err == nil && !e.hasPublicID(r.ClientID, &c)) {
		return client.Client{}, unknownClient(r)
	}
	if err == nil {
		err = e.verify(ctx, r, c)
	}
	return c, err
}

// jwtBearer is the only supported assertion type (RFC 7523, section 2.2).
const jwtBearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// nameFromAssertion sets the client_id, which a client that signs may omit (RFC 7521, section 4.2).
func (e *Engine) nameFromAssertion(r *TokenRequest) {
	if r.ClientID == "" && r.Assertion != "" && r.Dialect == Form {
		r.ClientID = e.Assertions.ClaimedClient(r.Assertion)
	}
}

// Clients finds stored clients by identifier. The error for an unknown client is client.ErrUnknown.
type Clients interface {
	// Client returns the client without its secrets.
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	// ClientWithSecret includes the live secret with this hash.
	ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error)
	// RecentClient returns a recently read client with its secrets, for requests that are refused in any case.
	RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error)
}

// Serves reports whether a stored client is still accepted. The domain of a client with a document may have been
// removed from the deployment's list.
func (e *Engine) Serves(c client.Client) bool {
	return c.Address == "" || e.Documents.Serves(c.Address)
}

// hasPublicID reports whether c has this client_id. A client with a document is identified only by its URL, never by
// the identifier under which it is stored.
func (e *Engine) hasPublicID(name string, c *client.Client) bool {
	return c != nil && c.PublicID() == name && e.Serves(*c)
}

const unknownApplication = "The app did not identify itself, or is not registered here."

// lookUpRedirect returns the client of an authorization request. It returns a *PageError, client.ErrUnreachable, or an
// error that wraps store.ErrUnavailable.
func (e *Engine) lookUpRedirect(ctx context.Context, name string) (client.Client, error) {
	if accesstoken.IsAddress(name) {
		c, err := e.Documents.Client(ctx, name)
		if errors.Is(err, client.ErrNotServed) {
			return client.Client{}, &PageError{
				"The application is not registered here, and its domain is not on the list of allowed domains.",
			}
		}
		if bad, ok := errors.AsType[*client.DocumentError](err); ok {
			return client.Client{}, &PageError{
				"The application's metadata document, at " + name + ", is not valid. " + bad.Message,
			}
		}
		return c, err
	}
	id, err := accesstoken.ClientID(name)
	if err != nil {
		return client.Client{}, &PageError{unknownApplication}
	}
	c, err := e.Clients.Client(ctx, id)
	if errors.Is(err, client.ErrUnknown) || (err == nil && (!c.Kind.Traits().Authorizes || !e.hasPublicID(name, &c))) {
		return client.Client{}, &PageError{unknownApplication}
	}
	return c, err
}
