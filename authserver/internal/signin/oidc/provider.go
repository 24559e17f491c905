// Package oidc signs users in at the deployment's OpenID Connect provider.
//
// It is the only importer of go-oidc and oauth2. There is one provider, named by the configuration: a caller never
// supplies its URLs. The package uses the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0,
// section 3.1; RFC 9700, section 2.1).
//
//	U1 An identity is accepted if its ID token is signed by a key of the provider, issued by the provider, for this
//	   client, for this attempt (nonce), and has not expired.
//	U2 An attempt that requests a new authentication is accepted if the user authenticated during the attempt
//	   (auth_time). Any other attempt authenticates the user as of auth_time, and proves nothing recent if the
//	   provider does not return it: the provider may have known the browser for weeks.
//	U3 The provider receives what its protocol requires, and nothing that our own callers sent.
//	U4 A provider that does not respond within RequestTimeout is ErrUnreachable, and the next attempt calls it again.
//
// endpoint/signin decides which user an identity belongs to, and whether that user may sign in.
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Errors of a Provider. Their texts contain neither codes nor tokens.
var (
	ErrUnreachable = errors.New("upstream provider unavailable")
	ErrRefused     = errors.New("upstream response refused")
)

// RequestTimeout limits one request to the provider.
const RequestTimeout = 5 * time.Second

// Settings are the provider's issuer and our registration there.
type Settings struct {
	Issuer       string
	ClientID     string
	ClientSecret credential.Secret
	RedirectURL  string
}

// A Provider is a client of the OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	settings Settings
	client   *http.Client
	now      func() time.Time
	lookup   singleflight.Group
	known    atomic.Pointer[discovered]
}

// New returns a Provider. It makes no request yet, so a provider that is down does not prevent the start.
func New(settings Settings, now func() time.Time) *Provider {
	return &Provider{settings: settings, client: newClient(), now: now}
}

// Issuer returns the provider's issuer identifier.
func (p *Provider) Issuer() string { return p.settings.Issuer }

// An Attempt is one redirect of a user to the provider. The server stores it, and finds it again by State.
type Attempt struct {
	State    string
	Nonce    string
	Verifier string // PKCE
	Proof    bool   // the user must authenticate again
	Began    time.Time
}

// NewAttempt returns a new attempt. State, nonce and verifier are independent random values.
func (p *Provider) NewAttempt(proof bool) Attempt {
	return Attempt{
		State:    rand.Text(),
		Nonce:    rand.Text(),
		Verifier: oauth2.GenerateVerifier(),
		Proof:    proof,
		Began:    p.now(),
	}
}

// An Identity is the user's identity at the provider.
type Identity struct {
	Issuer  string
	Subject string
	Email   string // "" unless the provider has verified it
	// ProvedAt is when the user last authenticated there (auth_time), not later than our clock; the zero time if the
	// provider does not return it.
	ProvedAt time.Time
}

// maxAnswer limits how much of one response of the provider is read, in bytes.
const maxAnswer = 1 << 20

// newClient returns a client that follows no redirects: the token request contains our client secret, and must go only
// to the URL that the provider's own document names.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       RequestTimeout,
		Transport:     bounded{http.DefaultTransport.(*http.Transport).Clone()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	return response, nil
}

// discovered is the provider's metadata (OpenID Connect Discovery 1.0, section 3).
type discovered struct {
	config   oauth2.Config
	keys     *oidc.RemoteKeySet
	signing  []string // algorithms that may sign an ID token
	sendsIss bool     // the provider adds iss to its responses (RFC 9207)
}

// discover fetches the provider's metadata once for all waiting callers, and caches it. A failure is not cached.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	if known := p.known.Load(); known != nil {
		return known, nil
	}
	found := p.lookup.DoChan("discovery", func() (any, error) {
		// The first caller may be cancelled; the others still wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
		defer cancel()
		metadata, err := p.discoverOnce(oidc.ClientContext(ctx, p.client))
		if err == nil {
			p.known.Store(metadata)
		}
		return metadata, err
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	case outcome := <-found:
		return outcome.Val.(*discovered), outcome.Err
	}
}

func (p *Provider) discoverOnce(ctx context.Context) (*discovered, error) {
	provider, err := oidc.NewProvider(ctx, p.settings.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", ErrUnreachable, brief(err))
	}
	var metadata struct {
		Keys     string   `json:"jwks_uri"`
		Methods  []string `json:"token_endpoint_auth_methods_supported"`
		SendsIss bool     `json:"authorization_response_iss_parameter_supported"`
		Signing  []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", ErrUnreachable, err)
	}
	endpoint := provider.Endpoint()
	for name, address := range map[string]string{
		"authorization": endpoint.AuthURL,
		"token":         endpoint.TokenURL,
		"keys":          metadata.Keys,
	} {
		if !Allowed(address) {
			return nil, fmt.Errorf("%w: discovery: %s is not an https URL", ErrUnreachable, name)
		}
	}
	endpoint.AuthStyle = authStyle(metadata.Methods)
	return &discovered{
		config: oauth2.Config{
			ClientID:     p.settings.ClientID,
			ClientSecret: p.settings.ClientSecret.Reveal(),
			Endpoint:     endpoint,
			RedirectURL:  p.settings.RedirectURL,
			Scopes:       []string{oidc.ScopeOpenID, "email"},
		},
		keys:     oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), metadata.Keys),
		signing:  accepted(metadata.Signing),
		sendsIss: metadata.SendsIss,
	}, nil
}

// authStyle returns how to authenticate at the token endpoint. Basic is the default if the provider does not say
// (Discovery, section 3). Trying both would spend the code on the first attempt.
func authStyle(methods []string) oauth2.AuthStyle {
	if len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// Allowed reports whether text is an https URL, or an http URL of this machine.
func Allowed(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return false
	}
	host := parsed.Hostname()
	return parsed.Scheme == "https" ||
		(parsed.Scheme == "http" && (host == "localhost" || host == "127.0.0.1" || host == "::1"))
}

// brief removes what the provider wrote from an error before it is logged: it may be a whole page.
func brief(err error) error {
	var mismatch *oidc.IssuerMismatchError
	var network *url.Error
	switch {
	case errors.As(err, &mismatch):
		return errors.New("the issuer in the metadata differs")
	case errors.As(err, &network):
		return network.Err
	}
	return errors.New("malformed metadata")
}

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
	used := &keys{remote: known.keys}
	token, err := oidc.NewVerifier(p.settings.Issuer, used, &oidc.Config{
		ClientID: p.settings.ClientID, SupportedSigningAlgs: known.signing, Now: p.now,
	}).Verify(ctx, text)
	switch {
	case err != nil && used.failed:
		return Identity{}, fmt.Errorf("%w: keys not fetched", ErrUnreachable)
	case err != nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return p.read(token, a)
}

// exchangeError distinguishes a provider that is down from one that refuses. Of the provider's response it passes on
// only the error code.
func exchangeError(err error) error {
	response, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !answered:
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

// accepted returns those of the provider's algorithms that may sign an ID token: no shared-secret algorithm, and not
// none. An empty result means RS256 (Discovery 1.0, section 3).
func accepted(offered []string) []string {
	asymmetric := []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512,
		oidc.EdDSA,
	}
	return slices.DeleteFunc(offered, func(algorithm string) bool { return !slices.Contains(asymmetric, algorithm) })
}

// keys are the provider's keys in one verification, fetched when an unknown one appears. A failed fetch is not the
// user's fault, but the library's verifier reports it only as text, so it is recorded here.
type keys struct {
	remote *oidc.RemoteKeySet
	failed bool
}

func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	k.failed = errors.Unwrap(err) != nil // a bad signature is an error without a cause; a failed fetch wraps its cause
	return payload, err
}
