package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
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

func TestConnectorExchange_ErrorCodes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	code := attempt.Code(t, p.Person(t, ws.Owner))
	form := attempt.CodeForm(code)
	for _, name := range []string{"grant_type", "client_id", "resource", "code", "code_verifier", "redirect_uri"} {
		t.Run("no "+name, func(t *testing.T) {
			attempt.Post(t, change(form, name)).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
		t.Run("two of "+name, func(t *testing.T) {
			attempt.Post(t, change(form, name, form.Get(name), form.Get(name))).
				WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
	}
	for name, c := range map[string]struct{ name, value, code string }{
		"unknown client":         {"client_id", uuid.NewString(), "invalid_client"},
		"client no identifier":   {"client_id", "nonsense", "invalid_client"},
		"another client":         {"client_id", ws.Connector(t, harness.ReadProgrammes).ClientID, "invalid_grant"},
		"unknown code":           {"code", "alm_ac_" + strings.Repeat("A", 100), "invalid_grant"},
		"wrong verifier":         {"code_verifier", strings.Repeat("w", 52), "invalid_grant"},
		"the challenge itself":   {"code_verifier", attempt.Query.Get("code_challenge"), "invalid_grant"},
		"other callback":         {"redirect_uri", "https://evil.example/", "invalid_grant"},
		"other resource":         {"resource", p.BaseURL + "/mcp", "invalid_target"},
		"client_credentials":     {"grant_type", "client_credentials", "unsupported_grant_type"},
		"grant_type in capitals": {"grant_type", "AUTHORIZATION_CODE", "unsupported_grant_type"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := attempt.Post(t, change(form, c.name, c.value))
			answer.WantsFlat(t, http.StatusBadRequest, c.code)
			answer.WantsHeader(t, "Cache-Control", "no-store").WantsHeader(t, "WWW-Authenticate", "")
		})
	}
	attempt.Post(t, change(form, "nonce", "unknown parameters are ignored")).Tokens(t)
}

func TestConnectorExchange_NeedsForm(t *testing.T) {
	t.Parallel()
	p := enter(t)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, p.Person(t, p.Demo.Users.Owner))
	form := attempt.CodeForm(code)
	flat := map[string]string{}
	for name := range form {
		flat[name] = form.Get(name)
	}
	t.Run("JSON", func(t *testing.T) {
		p.API().JSON(t, http.MethodPost, harness.TokenPath, flat).
			WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
	})
	for _, kind := range []string{
		"", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded-not",
	} {
		t.Run(kind, func(t *testing.T) {
			p.API().Send(t, http.MethodPost, harness.TokenPath, kind, form.Encode()).
				WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
	}
	t.Run("bad escape", func(t *testing.T) {
		kind := "application/x-www-form-urlencoded"
		p.API().Send(t, http.MethodPost, harness.TokenPath, kind, form.Encode()+"&x=%zz").
			WantsFlat(t, http.StatusBadRequest, "invalid_request")
		p.API().Send(t, http.MethodPost, harness.TokenPath, kind, "").
			WantsFlat(t, http.StatusBadRequest, "invalid_request")
	})
	kind := "application/x-www-form-urlencoded; charset=UTF-8"
	p.API().Send(t, http.MethodPost, harness.TokenPath, kind, form.Encode()).Tokens(t)
}

func TestConnectorRefresh_ErrorsConsumeNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	form := connector.RefreshForm(tokens.RefreshToken)
	for _, name := range []string{"grant_type", "client_id", "resource", "refresh_token"} {
		connector.Post(t, change(form, name)).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		connector.Post(t, change(form, name, form.Get(name), form.Get(name))).
			WantsFlat(t, http.StatusBadRequest, "invalid_request")
	}
	for name, c := range map[string]struct{ name, value, code string }{
		"other resource": {"resource", p.BaseURL + "/mcp", "invalid_target"},
		"unknown client": {"client_id", uuid.NewString(), "invalid_client"},
		"another client": {"client_id", ws.Connector(t, harness.ReadProgrammes).ClientID, "invalid_grant"},
	} {
		t.Run(name, func(t *testing.T) {
			connector.Post(t, change(form, c.name, c.value)).WantsFlat(t, http.StatusBadRequest, c.code)
		})
	}
	connector.Post(t, change(form, "resource", p.BaseURL+"/v1/")).WantsFlat(t, http.StatusBadRequest, "invalid_target")
	p.API().JSON(t, http.MethodPost, harness.TokenPath, map[string]string{
		"grant_type":    "refresh_token",
		"client_id":     connector.ClientID,
		"resource":      connector.Resource,
		"refresh_token": tokens.RefreshToken,
	}).WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
	for name, wrong := range misspellings(tokens.RefreshToken) {
		t.Run("misspelled: "+name, func(t *testing.T) {
			connector.Refresh(t, wrong).WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
		})
	}
	connector.Refresh(t, tokens.RefreshToken).Tokens(t)
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
	if err != nil {
		t.Fatal(redactError(err))
	}
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
