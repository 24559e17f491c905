package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// clockSkew is the tolerated difference between the provider's clock and ours.
const clockSkew = time.Minute

// Address returns the URL to which the browser is sent for an attempt. It returns ErrUnreachable.
func (p *Provider) Address(ctx context.Context, a Attempt) (string, error) {
	known, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	if a.Proof {
		// prompt requests a new authentication; max_age requires the provider to return its time (Core 1.0, section
		// 3.1.2.1).
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return known.config.AuthCodeURL(a.State, options...), nil
}

// An Answer is the response to the redirect URI for an attempt.
type Answer struct {
	Code   string
	Issuer string // the parameter iss, or ""
}

// Identify exchanges the code of an attempt and returns the identity in the ID token. It returns ErrUnreachable or
// ErrRefused.
func (p *Provider) Identify(ctx context.Context, a Attempt, answer Answer) (Identity, error) {
	known, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	if (answer.Issuer != "" || known.sendsIss) && answer.Issuer != p.settings.Issuer {
		return Identity{}, fmt.Errorf("%w: response from another issuer", ErrRefused)
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := known.config.Exchange(ctx, answer.Code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, exchangeError(err)
	}
	text, ok := tokens.Extra("id_token").(string)
	if !ok {
		return Identity{}, fmt.Errorf("%w: no ID token", ErrRefused)
	}
	var keysFailed bool
	token, err := known.verifier.Verify(withKeyFailure(ctx, &keysFailed), text)
	switch {
	case err != nil && keysFailed:
		return Identity{}, fmt.Errorf("%w: keys not fetched", ErrUnreachable)
	case err != nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return p.read(token, a)
}

// exchangeError distinguishes a provider that is down from one that refuses. Of the provider's response it passes on
// only the error code.
func exchangeError(err error) error {
	var response *oauth2.RetrieveError
	switch {
	case !errors.As(err, &response):
		return fmt.Errorf("%w: token endpoint: %w", ErrUnreachable, brief(err))
	case response.Response != nil && response.Response.StatusCode >= 500:
		return fmt.Errorf("%w: token endpoint: status %d", ErrUnreachable, response.Response.StatusCode)
	}
	return fmt.Errorf("%w: token endpoint: %q", ErrRefused, response.ErrorCode)
}

// read makes the checks that the library leaves to its caller (Core 1.0, section 3.1.3.7), and returns the identity.
func (p *Provider) read(token *oidc.IDToken, a Attempt) (Identity, error) {
	var claims struct {
		Email    string `json:"email"`
		Verified any    `json:"email_verified"`
		Party    string `json:"azp"`
		AuthTime int64  `json:"auth_time"`
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("%w: malformed claims", ErrRefused)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1:
		return Identity{}, fmt.Errorf("%w: ID token of another attempt", ErrRefused)
	case (len(token.Audience) > 1 || claims.Party != "") && claims.Party != p.settings.ClientID:
		return Identity{}, fmt.Errorf("%w: ID token for another client", ErrRefused)
	case token.Subject == "" || len(token.Subject) > 255:
		return Identity{}, fmt.Errorf("%w: ID token without subject", ErrRefused)
	case a.Proof && time.Unix(claims.AuthTime, 0).Before(a.Began.Add(-clockSkew)):
		return Identity{}, fmt.Errorf("%w: the user did not authenticate again", ErrRefused)
	}
	identity := Identity{Issuer: token.Issuer, Subject: token.Subject, ProvedAt: p.authenticatedAt(claims.AuthTime)}
	if claims.Verified == true { // only the boolean: a string is not accepted
		identity.Email, _ = spelling.Claimed(claims.Email)
	}
	return identity, nil
}

// authenticatedAt converts auth_time, in seconds, or 0 if there was none. It returns the zero time for a value in the
// future beyond clockSkew.
func (p *Provider) authenticatedAt(authTime int64) time.Time {
	at, now := time.Unix(authTime, 0), p.now()
	switch {
	case authTime <= 0 || at.After(now.Add(clockSkew)):
		return time.Time{}
	case at.After(now):
		return now
	}
	return at
}

// asymmetric returns the algorithms that may sign an ID token. Shared-secret algorithms and none are excluded.
func asymmetric() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512,
		oidc.EdDSA,
	}
}

// accepted returns which of the provider's algorithms are accepted; RS256 if it names none (Discovery 1.0, section 3).
func accepted(offered []string) []string {
	return slices.DeleteFunc(offered, func(algorithm string) bool { return !slices.Contains(asymmetric(), algorithm) })
}

// keys are the provider's keys, fetched when an unknown one appears. A failed fetch is not the user's fault, but the
// library's verifier reports it only as text, so it is recorded in the context.
type keys struct{ remote *oidc.RemoteKeySet }

type keyFailureKey struct{}

// withKeyFailure returns a context in which VerifySignature sets failed if the keys cannot be fetched.
func withKeyFailure(ctx context.Context, failed *bool) context.Context {
	return context.WithValue(ctx, keyFailureKey{}, failed)
}

func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	// A bad signature is an error without a cause; a failed fetch wraps its cause.
	if failed, ok := ctx.Value(keyFailureKey{}).(*bool); ok && errors.Unwrap(err) != nil {
		*failed = true
	}
	return payload, err
}
