package e2e

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 3: applications that are registered for client_secret_post or client_secret_basic use plain RFC
// 6749, so that standard libraries work with them.

func TestStandardExchange_Forms(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	keys := []string{"access_token", "token_type", "expires_in", "scope", "tenant_id"}
	post := ws.Confidential(t, "client_secret_post", harness.ReadProgrammes)
	p.API().Form(t, harness.TokenPath, post.Form(post.Code(t, owner))).Wants(t, http.StatusOK).WantsKeys(t, keys...)
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	p.API().Form(t, harness.TokenPath, basic.Form(basic.Code(t, owner))).Wants(t, http.StatusOK)
	for _, app := range []harness.ConfidentialApp{basic, post} { // either may use both
		form := app.Form(app.Code(t, owner))
		delete(form, "client_id")
		delete(form, "client_secret")
		p.API().With("Authorization", harness.Basic(app.ClientID, app.ClientSecret)).Form(t, harness.TokenPath, form).
			Wants(t, http.StatusOK).
			WantsKeys(t, keys...)
	}
}

func TestStandardExchange_OAuth2Library(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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
			if err != nil {
				t.Fatal(redactError(err))
			}
			p.In(ws.Workspace, token.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
			if token.RefreshToken != "" || token.Extra("tenant_id") != ws.Workspace.ID {
				t.Error("unexpected refresh token, or wrong tenant_id")
			}
		})
	}
}

func redactError(err error) string { return harness.Redact(err.Error()) }

// "with 401 + WWW-Authenticate: Basic only for a failed Basic header, which the RFC demands"
func TestStandardExchange_OnlyFailedBasicIs401(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner)
	form := basic.Form(basic.Code(t, owner))
	delete(form, "client_id")
	delete(form, "client_secret")
	answer := p.API().With("Authorization", harness.Basic(basic.ClientID, alterLast(basic.ClientSecret))).
		Form(t, harness.TokenPath, form)
	answer.WantsFlat(t, http.StatusUnauthorized, "invalid_client")
	if !strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic") {
		t.Errorf("WWW-Authenticate is %q", answer.Header.Get("WWW-Authenticate"))
	}
	good := p.API().With("Authorization", harness.Basic(basic.ClientID, basic.ClientSecret))
	good.Form(t, harness.TokenPath, change(form, "code", "alm_ac_nonsense")).
		WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	good.Form(t, harness.TokenPath, form).Tokens(t)

	post := ws.Confidential(t, "client_secret_post", harness.ReadProgrammes)
	code := post.Code(t, owner)
	p.API().Form(t, harness.TokenPath, change(post.Form(code), "client_secret", alterLast(post.ClientSecret))).
		WantsHeader(t, "WWW-Authenticate", "").WantsFlat(t, http.StatusBadRequest, "invalid_client")
	p.API().Form(t, harness.TokenPath, change(post.Form(code), "client_secret")).
		WantsFlat(t, http.StatusBadRequest, "invalid_client", "invalid_request")
	for _, name := range []string{"grant_type", "client_id", "code", "redirect_uri"} {
		p.API().Form(t, harness.TokenPath, change(post.Form(code), name)).
			WantsFlat(t, http.StatusBadRequest, "invalid_request")
		values := post.Form(code)
		values.Add(name, values.Get(name))
		p.API().Form(t, harness.TokenPath, values).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	}
	p.API().Form(t, harness.TokenPath, post.Form(code)).Tokens(t)
}

// "PKCE is optional, and enforced once it was sent."
func TestStandardExchange_PKCEIsEnforcedIfSent(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	verifier := oauth2.GenerateVerifier()
	request := change(change(app.Request(), "code_challenge", oauth2.S256ChallengeFromVerifier(verifier)),
		"code_challenge_method", "S256")
	code := owner.Consent(t, request).Approve(t)
	exchange := func(code string, verifier any) harness.Answer {
		body := app.Body(code)
		if verifier != nil {
			body["code_verifier"] = verifier
		}
		return app.Exchange(t, body)
	}
	// The contract allows either error for a missing verifier.
	exchange(code, nil).WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
	exchange(code, "").WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
	exchange(code, oauth2.GenerateVerifier()).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	exchange(code, verifier).Tokens(t)

	plain := app.Code(t, owner)
	exchange(plain, verifier).WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
	// "A verifier where no challenge was sent: 400."
	exchange(plain, nil).Tokens(t)
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
