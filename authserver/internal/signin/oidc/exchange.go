package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// clockSkew is by how much the provider's clock may differ from ours.
const clockSkew = time.Minute

// Address is where the browser is sent for an attempt. It returns ErrUnreachable.
func (p *Provider) Address(ctx context.Context, a Attempt) (string, error) {
	known, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	if a.Proof {
		// prompt asks, max_age obliges the provider to say when it was done (Core 1.0, section 3.1.2.1).
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return known.config.AuthCodeURL(a.State, options...), nil
}

// An Answer is what came back to the redirect URI for an attempt.
type Answer struct {
	Code   string
	Issuer string // the parameter iss, "" where there was none
}

// Identify exchanges the code of an attempt and returns who the ID token says it is. It returns ErrUnreachable or
// ErrRefused.
func (p *Provider) Identify(ctx context.Context, a Attempt, answer Answer) (Identity, error) {
	known, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	if (answer.Issuer != "" || known.saysIss) && answer.Issuer != p.settings.Issuer {
		return Identity{}, fmt.Errorf("%w: it came from another issuer", ErrRefused)
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := known.config.Exchange(ctx, answer.Code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, exchangeError(err)
	}
	text, ok := tokens.Extra("id_token").(string)
	if !ok {
		return Identity{}, fmt.Errorf("%w: there is no ID token", ErrRefused)
	}
	var noKeys bool
	token, err := known.verifier.Verify(noting(ctx, &noKeys), text)
	switch {
	case err != nil && noKeys:
		return Identity{}, fmt.Errorf("%w: its keys cannot be fetched", ErrUnreachable)
	case err != nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return p.read(token, a)
}

// exchangeError tells a provider that is down from one that says no. What it wrote is not passed on but for its error
// code.
func exchangeError(err error) error {
	var said *oauth2.RetrieveError
	switch {
	case !errors.As(err, &said):
		return fmt.Errorf("%w: token endpoint: %w", ErrUnreachable, brief(err))
	case said.Response != nil && said.Response.StatusCode >= 500:
		return fmt.Errorf("%w: token endpoint: status %d", ErrUnreachable, said.Response.StatusCode)
	}
	return fmt.Errorf("%w: token endpoint: %q", ErrRefused, said.ErrorCode)
}

// read checks what the library leaves to us (Core 1.0, section 3.1.3.7) and takes what we need.
func (p *Provider) read(token *oidc.IDToken, a Attempt) (Identity, error) {
	var claims struct {
		Email    string `json:"email"`
		Verified any    `json:"email_verified"`
		Party    string `json:"azp"`
		AuthTime int64  `json:"auth_time"`
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("%w: its claims cannot be read", ErrRefused)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1:
		return Identity{}, fmt.Errorf("%w: the ID token is not of this attempt", ErrRefused)
	case (len(token.Audience) > 1 || claims.Party != "") && claims.Party != p.settings.ClientID:
		return Identity{}, fmt.Errorf("%w: the ID token was made for another party", ErrRefused)
	case token.Subject == "" || len(token.Subject) > 255:
		return Identity{}, fmt.Errorf("%w: the ID token names nobody", ErrRefused)
	case a.Proof && time.Unix(claims.AuthTime, 0).Before(a.Began.Add(-clockSkew)):
		return Identity{}, fmt.Errorf("%w: the person was not asked anew", ErrRefused)
	}
	identity := Identity{Issuer: token.Issuer, Subject: token.Subject, ProvedAt: p.proved(claims.AuthTime)}
	if claims.Verified == true { // the boolean alone: a text is no yes
		identity.Email = lower(claims.Email)
	}
	return identity, nil
}

// proved reads auth_time, in seconds, 0 where there was none. What lies ahead of our clock by more than the clocks may
// differ is no time of a proof.
func (p *Provider) proved(authTime int64) time.Time {
	at, now := time.Unix(authTime, 0), p.now()
	switch {
	case authTime <= 0 || at.After(now.Add(clockSkew)):
		return time.Time{}
	case at.After(now):
		return now
	}
	return at
}

// lower lower-cases ASCII letters alone: there are letters beyond that become an ASCII one, and an address must not
// become somebody else's.
func lower(email string) string {
	out := []byte(email)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + ('a' - 'A')
		}
	}
	return string(out)
}
