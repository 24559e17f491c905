package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.3 and contract, section 3: exchange and refresh of a connector as a form.

// connectorKeys are all keys of the response to a connector.
var connectorKeys = []string{
	"access_token", "token_type", "expires_in", "scope", "tenant_id", "refresh_token", "authorization_expires_in",
}

func TestConnectorExchange_AndRefreshReturnTokens(t *testing.T) {
	t.Parallel()
	p := enter(t)
	connector, owner := p.DemoConnector(), p.Person(t, p.Demo.Users.Owner)
	attempt := connector.Begin()
	first := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner)))
	tokens := first.Tokens(t)
	for range 3 {
		answer := connector.Refresh(t, tokens.RefreshToken)
		for _, answer := range []harness.Answer{first, answer} {
			answer.Wants(t, http.StatusOK).WantsKeys(t, slices.Clone(connectorKeys)...)
			answer.WantsHeader(t, "Cache-Control", "no-store")
		}
		next := answer.Tokens(t)
		if next.RefreshToken == tokens.RefreshToken || next.AccessToken == tokens.AccessToken ||
			!strings.HasPrefix(next.RefreshToken, "alm_rt_") {
			t.Error("a token was not replaced, or does not have the format of section 2 of the contract")
		}
		wantsSeconds(t, "expires_in", next.ExpiresIn, 3600)
		wantsSeconds(t, "authorization_expires_in", next.AuthorizationEnd, 30*24*3600)
		if next.Scope != connector.Scope || next.WorkspaceID != p.Demo.Workspaces.Main.ID ||
			next.TokenType != "Bearer" {
			t.Errorf("wrong token response:\n%s", answer)
		}
		// An earlier access token works until it expires.
		for _, token := range []string{tokens.AccessToken, next.AccessToken} {
			p.In(p.Demo.Workspaces.Main, token).Get(t, programmes).Wants(t, http.StatusOK)
		}
		tokens = next
	}
}

func TestConnectorExchange_OAuth2Library(t *testing.T) {
	t.Parallel()
	p := enter(t)
	connector := p.DemoConnector()
	config, ctx := oauth2Connector(p, connector), withResource(t.Context(), connector)
	verifier := oauth2.GenerateVerifier()
	address := config.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier),
		oauth2.SetAuthURLParam("resource", connector.Resource))
	code := p.Person(t, p.Demo.Users.Owner).Arrive(t, address).Approve(t)
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	mustRedacted(t, err)
	seen := map[string]bool{token.RefreshToken: true}
	for range 3 {
		token.Expiry = time.Now().Add(-time.Second) // the library refreshes expired tokens
		source := config.TokenSource(ctx, token)
		if token, err = source.Token(); err != nil {
			t.Fatal(redactError(err))
		}
		if seen[token.RefreshToken] {
			t.Fatal("the refresh token was not replaced")
		}
		seen[token.RefreshToken] = true
		p.In(p.Demo.Workspaces.Main, token.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	}
}
