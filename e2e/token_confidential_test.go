package e2e

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.3 and contract, section 3: the exchange of a confidential application, in JSON and with plain RFC 6749.

func TestConfidentialExchange_ReturnsToken(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	for name, more := range map[string]map[string]any{
		"spec 4.3":                      {},
		"grant_type authorization_code": {"grant_type": "authorization_code"},
		"the REST API's resource":       {"resource": p.BaseURL + "/v1"},
		"unknown parameters":            {"nonce": "x", "audience": "https://x.example", "scope": "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			body := app.Body(app.Code(t, owner))
			for key, value := range more {
				body[key] = value
			}
			answer := app.Exchange(t, body).Wants(t, http.StatusOK)
			answer.WantsKeys(t, "access_token", "token_type", "expires_in", "scope", "tenant_id")
			answer.WantsHeader(t, "Cache-Control", "no-store")
			tokens := answer.Tokens(t)
			wantsSeconds(t, "expires_in", tokens.ExpiresIn, 90*24*3600)
			if tokens.TokenType != "Bearer" || tokens.Scope != harness.ReadProgrammes ||
				tokens.WorkspaceID != p.Demo.Workspaces.Main.ID {
				t.Errorf("wrong token response:\n%s", answer)
			}
			p.In(p.Demo.Workspaces.Main, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
		})
	}
}

// wantsSeconds checks a duration, with a tolerance for the time that the test takes.
func wantsSeconds(t *testing.T, name string, got, want int) {
	t.Helper()
	if got > want || got < want-30 {
		t.Errorf("%s is %d seconds, want %d or slightly less", name, got, want)
	}
}

func TestStandardExchange_OAuth2Library(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	for method, style := range map[string]oauth2.AuthStyle{
		"client_secret_post": oauth2.AuthStyleInParams, "client_secret_basic": oauth2.AuthStyleInHeader,
	} {
		t.Run(method, func(t *testing.T) {
			app := ws.Confidential(t, method, harness.ReadProgrammes)
			config := oauth2App(p, app, style)
			verifier := oauth2.GenerateVerifier()
			page := owner.Arrive(t, config.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
			token, err := config.Exchange(context.Background(), page.Approve(t), oauth2.VerifierOption(verifier))
			mustRedacted(t, err)
			p.In(ws.Workspace, token.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
			if token.RefreshToken != "" || token.Extra("tenant_id") != ws.Workspace.ID {
				t.Error("unexpected refresh token, or wrong tenant_id")
			}
		})
	}
}

func redactError(err error) string { return harness.Redact(err.Error()) }

// mustRedacted fails the test now if there is an error, which may contain a secret.
func mustRedacted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(redactError(err))
	}
}

func TestTokenEndpoint_AliasIsSameHandler(t *testing.T) {
	t.Parallel()
	p := enter(t)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, p.Person(t, p.Demo.Users.Owner))
	p.API().Form(t, "/token", change(attempt.CodeForm(code), "code", "x")).
		WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	p.API().Form(t, "/token", attempt.CodeForm(code)).Tokens(t)
	p.API().Form(t, "/token", url.Values{}).WantsFlat(t, http.StatusBadRequest, "invalid_request")
}
