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
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/net/web"
)

// authenticate is fosite's client authentication. If the request can be decided directly, it returns a client that
// authenticated before. The decision then checks it again.
func (e *Engine) authenticate(ctx context.Context, _ *http.Request, _ url.Values) (fosite.Client, error) {
	x := exchangeOf(ctx)
	r := x.request
	t, _ := grantTypeOf(r.GrantType)
	if t.presents != "" {
		var err error
		x.token, err = e.Grants.ReadToken(t.kind, r.Parameters[t.presents])
		x.forged = err != nil
	}
	web.RecordGrant(ctx, x.token.GrantID)
	id, err := identity.OfClient(r.ClientID)
	if err != nil {
		return nil, unknownClient(r)
	}
	if c, ok := e.knownClient(x, id); ok && t.presents != "" && !e.refused.Contains(x.token.GrantID) {
		x.snapshot, x.direct = grant.Snapshot{Client: c}, true
	} else if err := e.identify(ctx, x, id); err != nil {
		return nil, err
	}
	return fositeClient{*x.snapshot.Client}, nil
}

// knownClient returns the client with this identifier if it authenticated before and needs no authentication, and if
// the request has none.
func (e *Engine) knownClient(x *exchange, id uuid.UUID) (*client.Client, bool) {
	r := x.request
	if x.forged || r.Dialect != Form || r.Basic || r.ClientSecret != "" || r.Assertion != "" {
		return nil, false
	}
	c, ok := e.known.Get(id)
	return c, ok && e.hasPublicID(r.ClientID, c)
}

// identify authenticates the client. It reads, in one statement, everything that the rest of the request needs. A store
// that does not respond is an error, not an unknown client.
func (e *Engine) identify(ctx context.Context, x *exchange, id uuid.UUID) (err error) {
	r := x.request
	if x.snapshot, err = e.snapshotFor(ctx, x, id); err != nil {
		return err
	}
	if x.snapshot.Client == nil || x.snapshot.Client.AuthMethod != client.AuthNone {
		e.known.Remove(id)
	}
	if x.snapshot.Client == nil {
		return goneClient(r, x.snapshot.Grant, id)
	}
	if !e.hasPublicID(r.ClientID, x.snapshot.Client) {
		return unknownClient(r)
	}
	if err := checkClient(r, *x.snapshot.Client); err != nil {
		return err
	}
	if err := e.verifyAssertion(ctx, r, *x.snapshot.Client); err != nil {
		return err
	}
	if x.snapshot.Client.AuthMethod == client.AuthNone {
		e.known.Add(id, x.snapshot.Client)
	}
	x.recordCaller(ctx)
	return nil
}

// recordCaller records for the access log which client, and whose grant, the request is for.
func (e *exchange) recordCaller(ctx context.Context) {
	caller := web.Caller{Client: e.snapshot.Client.ID}
	if g := e.snapshot.Grant; g != nil && g.ClientID == caller.Client {
		caller.Credential, caller.Workspace, caller.User = g.ID, g.WorkspaceID, g.UserID
	}
	web.RecordCaller(ctx, caller)
}

// snapshotFor reads the data that the decision needs. A request with a forged code or token is refused in any case (see
// respond). It therefore uses recently read data of its client to describe the refusal, so a flood of garbage causes no
// flood of reads.
func (e *Engine) snapshotFor(ctx context.Context, x *exchange, id uuid.UUID) (grant.Snapshot, error) {
	if !x.forged {
		return e.Grants.SnapshotWithSecret(ctx, id, x.token.Key(), client.SecretHash(x.request.ClientSecret))
	}
	c, err := e.Clients.RecentClient(ctx, id)
	if errors.Is(err, client.ErrUnknown) {
		return grant.Snapshot{}, nil
	}
	return grant.Snapshot{Client: &c}, err
}

func unknownClient(r TokenRequest) *TokenError {
	return &TokenError{
		Code:        "invalid_client",
		Description: "The client is unknown, or its secret is wrong or missing.",
		Challenge:   r.Basic,
	}
}

// goneClient is like unknownClient, with a specific description if the presented token's grant ended with its client.
func goneClient(r TokenRequest, g *grant.Grant, id uuid.UUID) *TokenError {
	refused := unknownClient(r)
	if g != nil && g.ClientID == id && g.Reason == grant.ClientDeleted {
		refused.Description = g.Reason.Words(g.RevokedAt)
	}
	return refused
}

// checkClient checks that the request has the form required for its kind of client, and authenticates the client.
func checkClient(r TokenRequest, c client.Client) error {
	traits := c.Kind.Traits()
	switch {
	case !traits.Authorizes && !c.SecretMatches(r.ClientSecret):
		return unknownClient(r)
	case !traits.Authorizes:
		return tokenError(
			"unauthorized_client",
			"A service client has no grants. It can introspect tokens, but cannot exchange or revoke them.",
		)
	case traits.Public && r.Basic:
		return tokenError("invalid_request", "A connector has no secret. Remove the Authorization header.")
	case traits.Public && r.Dialect == JSON:
		return tokenError("invalid_request", "A connector must send application/x-www-form-urlencoded.")
	case traits.Public:
		return nil
	}
	return checkSecret(r, c)
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
