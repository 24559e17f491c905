package engine

import (
	"context"
	"errors"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

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
	id, err := identity.OfClient(r.ClientID)
	if err != nil {
		return client.Client{}, unknownClient(r)
	}
	c, err := e.Clients.ClientWithSecret(ctx, id, client.SecretHash(r.ClientSecret))
	if errors.Is(err, client.ErrUnknown) || (err == nil && !e.hasPublicID(r.ClientID, &c)) {
		return client.Client{}, unknownClient(r)
	}
	if err != nil {
		return client.Client{}, err
	}
	if err := checkClient(r, c); err != nil {
		return client.Client{}, err
	}
	if err := e.verifyAssertion(ctx, r, c); err != nil {
		return client.Client{}, err
	}
	return c, nil
}
