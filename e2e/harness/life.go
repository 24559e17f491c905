package harness

import (
	"net/http"
	"testing"
)

// ListPath is the route by which tests see whether an access token is good for anything.
const ListPath = "/v1/programmes/programmes"

// WantsDead checks that none of these tokens of one grant does anything any more.
func (c Connector) WantsDead(t testing.TB, tokens ...Tokens) {
	t.Helper()
	for _, token := range tokens {
		c.List(t, token).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	for _, token := range tokens {
		c.Refresh(t, token.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
}

// WantsAlive checks that the tokens do what they are for, and returns the next ones.
func (c Connector) WantsAlive(t testing.TB, tokens Tokens) Tokens {
	t.Helper()
	c.List(t, tokens).Wants(t, http.StatusOK)
	return c.Refresh(t, tokens.RefreshToken).Tokens(t)
}

// List lists programmes with an access token, in the workspace that it is for.
func (c Connector) List(t testing.TB, tokens Tokens) Answer {
	t.Helper()
	return c.product.As(tokens.AccessToken).With("X-Tenant-Id", tokens.TenantID).Get(t, ListPath)
}
