package token_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func (b *testEnv) claims(answer apitest.Answer) accesstoken.Claims {
	b.t.Helper()
	claims, err := b.Keyring.Public().Verify(answer.Text("access_token"), apitest.Issuer, time.Now())
	if err != nil {
		b.t.Fatalf("the access token: %v", err)
	}
	return claims
}

func TestExchange_ConfidentialClientGets90DayToken(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.linked, b.user)
	answer := b.linkCode(code)
	b.given("JSON", answer)
	body := answer.Object()
	const lifetime = 90 * 24 * 60 * 60
	if body["token_type"] != "Bearer" || body["expires_in"] != float64(lifetime) ||
		body["scope"] != "programmes:read:programmes" ||
		body["tenant_id"] != b.Fixture.WorkspaceID.String() ||
		len(body) != 5 {
		t.Errorf(
			"the answer: %d members, type %v, expires %v, scope %v",
			len(body),
			body["token_type"],
			body["expires_in"],
			body["scope"],
		)
	}
	if answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Pragma") != "no-cache" {
		t.Errorf("headers: %v", answer.Header)
	}
	claims := b.claims(answer)
	if claims.Subject != b.user || claims.Audience != apitest.REST || claims.ClientID != b.linked.ID.String() ||
		claims.Scope.Scope() != "programmes:read:programmes" ||
		claims.WorkspaceID != b.Fixture.WorkspaceID ||
		claims.GrantID != g.ID ||
		claims.Expires.Sub(claims.IssuedAt) != lifetime*time.Second {
		t.Errorf("claims: %+v", claims)
	}
}

func TestExchange_ConnectorGetsOneHourAndRefreshToken(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	answer := b.exchange()
	b.given("form", answer)
	body := answer.Object()
	left, _ := body["authorization_expires_in"].(float64)
	if body["expires_in"] != float64(3600) || body["token_type"] != "Bearer" ||
		body["scope"] != "programmes:read:programmes programmes:write:programmes" ||
		body["tenant_id"] != b.Fixture.WorkspaceID.String() ||
		!strings.HasPrefix(answer.Text("refresh_token"), "alm_rt_") ||
		len(body) != 7 {
		t.Errorf("the answer: %d members, expires %v, scope %v", len(body), body["expires_in"], body["scope"])
	}
	if month := float64(30 * 24 * 3600); left > month || left < month-60 {
		t.Errorf("authorization_expires_in: %v", left)
	}
	if claims := b.claims(answer); claims.Audience != apitest.REST || claims.Expires.Sub(claims.IssuedAt) != time.Hour {
		t.Errorf("claims: %+v", claims)
	}
}

func TestRefresh_RotatesAndNeverExtends(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.Exec(`update account.grants set ends_at = now() + interval '20 minutes' where id = $1`, held.Grant.ID)
	answer := b.refresh(held.Refresh)
	b.given("refresh", answer)
	if next := answer.Text("refresh_token"); next == "" || next == held.Refresh.Reveal() {
		t.Error("the refresh token was not replaced")
	}
	for _, name := range []string{"expires_in", "authorization_expires_in"} {
		if seconds, _ := answer.Object()[name].(float64); seconds > 1200 || seconds < 1100 {
			t.Errorf("%s is %v, with 20 minutes left", name, seconds)
		}
	}
}

func TestRefresh_LostPermissionStaysInScope(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.Exec(
		`update account.memberships set permissions = '{programmes:read:programmes}' where user_id = $1`,
		b.user,
	)
	answer := b.refresh(held.Refresh)
	b.given("one permission left", answer)
	if answer.Text("scope") != "programmes:read:programmes programmes:write:programmes" {
		t.Errorf("scope: %s", answer.Text("scope"))
	}
}

// A grant that is older than the permission sets of the resources may hold more than its resource can use.
func TestToken_ScopeIsLimitedToResource(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead, perm.ProgrammesWrite)
	first := b.exchange()
	b.given("exchange", first)
	second := b.refresh(credential.Secret(first.Text("refresh_token")))
	b.given("refresh", second)
	for name, answer := range map[string]apitest.Answer{"exchange": first, "refresh": second} {
		if claims := b.claims(answer); answer.Text("scope") != "programmes:read:programmes" ||
			claims.Scope.Scope() != "programmes:read:programmes" {
			t.Errorf("%s: scope %s, in the token %s", name, answer.Text("scope"), claims.Scope.Scope())
		}
	}
}

func TestToken_OptionalParameters(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.given("grant_type", b.link("grant_type", "authorization_code"))
	b.given("resource", b.link("resource", apitest.REST))
	b.given("unknown parameters", b.link("audience", "x", "scope", "y"))
	b.given("empty is missing", b.link("grant_type", "", "resource", "", "code_verifier", "", "refresh_token", ""))
	b.given("unknown parameters in a form", b.exchange("scope", "y", "audience", "x"))
	b.given("an empty secret in a form", b.exchange("client_secret", ""))
}

func TestToken_IgnoresCredentialsInQuery(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	_, code := b.Consent(b.linked, b.user)
	answer := b.Send(
		"POST",
		path+"?client_id=x&client_secret=y&code=z&grant_type=password",
		`{"client_id":"`+b.linked.ID.String()+`","client_secret":"`+
			b.secret.Reveal()+`","code":"`+code.Reveal()+`","redirect_uri":"`+fixture.Callback+`"}`,
		"Content-Type",
		"application/json",
	)
	b.given("credentials in the body and others in the query", answer)
	query := "?client_id=" + b.linked.ID.String() + "&client_secret=" + b.secret.Reveal() +
		"&code=" + code.Reveal() + "&redirect_uri=" + fixture.Callback
	b.refused(
		"all in the query",
		b.Send("POST", path+query, "{}", "Content-Type", "application/json"),
		400,
		"invalid_request",
	)
	if strings.Contains(b.Log.String(), b.secret.Reveal()) {
		t.Error("a query string is in the log")
	}
}

// The Go library exchanges codes unmodified, in both of its styles (contract, section 3).
func TestGoLibrary_ExchangesCode(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for method, style := range map[client.AuthMethod]oauth2.AuthStyle{
		client.SecretPost: oauth2.AuthStyleInParams, client.SecretBasic: oauth2.AuthStyleInHeader,
	} {
		c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
		setAuthMethod(b.Server, c, method)
		config := oauth2.Config{
			ClientID:     c.ID.String(),
			ClientSecret: secret.Reveal(),
			RedirectURL:  fixture.Callback,
			Endpoint:     oauth2.Endpoint{TokenURL: b.URL + path, AuthStyle: style},
		}
		_, code := b.Consent(c, b.user)
		token, err := config.Exchange(t.Context(), code.Reveal())
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if !token.Valid() || token.Type() != "Bearer" || token.RefreshToken != "" ||
			token.Extra("tenant_id") != b.Fixture.WorkspaceID.String() {
			t.Errorf("%s: type %s, expiry %v", method, token.Type(), token.Expiry)
		}
		if _, err := config.Exchange(t.Context(), code.Reveal()); err == nil ||
			!strings.Contains(err.Error(), "invalid_grant") {
			t.Errorf("%s: a second exchange: %v", method, err)
		}
		config.ClientSecret = b.secret.Reveal()
		_, code = b.Consent(c, b.user)
		if _, err := config.Exchange(t.Context(), code.Reveal()); err == nil ||
			!strings.Contains(err.Error(), "invalid_client") {
			t.Errorf("%s: another client's secret: %v", method, err)
		}
	}
}

// A public client of the library uses PKCE and the resource parameter.
func TestGoLibrary_ConnectsAsPublicClient(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	config := oauth2.Config{
		ClientID: b.app.ID.String(), RedirectURL: fixture.Callback,
		Endpoint: oauth2.Endpoint{TokenURL: b.URL + path, AuthStyle: oauth2.AuthStyleInParams},
	}
	_, code := b.Consent(b.app, b.user)
	token, err := config.Exchange(
		t.Context(),
		code.Reveal(),
		oauth2.VerifierOption(apitest.Verifier),
		oauth2.SetAuthURLParam("resource", apitest.REST),
	)
	if err != nil {
		t.Fatal(err)
	}
	if !token.Valid() || token.RefreshToken == "" {
		t.Errorf("type %s, expiry %v", token.Type(), token.Expiry)
	}
}
