package engine

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// RefreshToken is the grant type that rotates a refresh token.
const RefreshToken = "refresh_token"

// refreshToken rotates a refresh token (RFC 6749, section 6).
var refreshToken = grantType{
	name:     RefreshToken,
	required: []string{"refresh_token"},
	optional: []string{"resource"},
	formOnly: true,
	presents: "refresh_token",
	kind:     grant.Refresh,
	mayUse:   func(t client.Traits) bool { return t.Refreshes },
	check:    checkRefresh,
	decide: func(ctx context.Context, e *Engine, x *exchange) (grant.Issued, error) {
		resource := x.request.Parameters["resource"].Reveal()
		return e.Grants.Rotate(ctx, x.snapshot, x.token, x.snapshot.Client.ID, resource, x.sender())
	},
	decideDirectly: func(ctx context.Context, e *Engine, x *exchange) (grant.Issued, bool, error) {
		resource := x.request.Parameters["resource"].Reveal()
		return e.Grants.RotateDirectly(ctx, x.snapshot.Client.ID, x.token, resource, x.sender())
	},
}

func checkRefresh(x *exchange) error {
	switch {
	case !x.snapshot.Client.Kind.Traits().Refreshes:
		return tokenError(
			"unauthorized_client",
			"This client has no refresh tokens. Send the user to the consent page again.",
		)
	case x.request.Parameters["resource"] == "":
		return tokenError("invalid_request", "resource is required.")
	case x.forged:
		return tokenError("invalid_grant", "The refresh token is unknown.")
	}
	return nil
}
