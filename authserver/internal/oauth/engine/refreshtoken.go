package engine

import (
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// RefreshToken is the grant type that rotates a refresh token.
const RefreshToken = "refresh_token"

// refreshToken rotates a refresh token (RFC 6749, section 6).
var refreshToken = grantType{
	name:     RefreshToken,
	required: []string{"refresh_token"},
	optional: []string{"resource", "scope"},
	formOnly: true,
	presents: "refresh_token",
	kind:     grant.Refresh,
	mayUse:   func(t client.Traits) bool { return t.Refreshes },
	check:    checkRefresh,
	terms:    refreshTerms,
}

func refreshTerms(_ *Engine, x *exchange) grant.CodeTerms {
	return grant.CodeTerms{ClientID: x.snapshot.Client.ID, Resource: x.request.Parameters["resource"].Reveal()}
}

// checkRefresh also reads scope, which narrows the access token (RFC 6749, section 6). Without a permission in it, it
// is as if it were missing.
func checkRefresh(x *exchange) error {
	x.scope = perm.ParseScope(x.request.Parameters["scope"].Reveal()).Without(perm.NewSet(offlineAccess))
	switch {
	case !x.snapshot.Client.Kind.Traits().Refreshes:
		return tokenError(
			"unauthorized_client",
			"This client has no refresh tokens. Send the user to the consent page again.",
		)
	case x.request.Parameters["resource"] == "":
		return tokenError("invalid_request", "resource is required."+librariesHelp)
	case x.forged:
		return tokenError("invalid_grant", "The refresh token is unknown.")
	}
	return nil
}
