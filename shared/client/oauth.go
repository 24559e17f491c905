package client

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// An Application is a registered application (spec 2.2) and its deployment. It asks a user for consent and
// gets tokens on the user's behalf.
type Application struct {
	BaseURL     string // of the API, which is the issuer
	AppURL      string // of the consent page
	ClientID    string
	RedirectURI string       // exactly as registered
	HTTPClient  *http.Client // nil for a client with a timeout of 30 seconds
}

// A Connector is a public application with PKCE and refresh tokens (spec 5.2.3).
type Connector struct {
	Application
	Resource string   // exactly as registered: the base URL followed by /v1 or /mcp
	Scopes   []string // permissions to request; empty for all that the connector is registered for
}

// A ConfidentialApp is an application with a server that stores a secret (spec 5.2.2).
type ConfidentialApp struct {
	Application
	Secret Secret
}

// A Question is one request for a user's consent: the address for the browser, and the values to store in the
// user's session until the browser returns.
type Question struct {
	URL      string
	State    string
	Verifier string // of PKCE: a secret of this one request
}

// String does not reveal the verifier.
func (q Question) String() string { return "[a request for consent]" }

// GoString is String for %#v.
func (q Question) GoString() string { return q.String() }

// Ask makes a request for consent.
func (c Connector) Ask() Question {
	return c.ask(c.Scopes, oauth2.SetAuthURLParam("resource", c.Resource))
}

// Ask makes a request for consent with PKCE, which is optional for these applications and enforced once sent.
func (c ConfidentialApp) Ask() Question { return c.ask(nil) }

func (a Application) ask(scopes []string, more ...oauth2.AuthCodeOption) Question {
	q := Question{State: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	config := oauth2.Config{
		ClientID:    a.ClientID,
		RedirectURL: a.RedirectURI,
		Scopes:      scopes,
		Endpoint:    oauth2.Endpoint{AuthURL: strings.TrimRight(a.AppURL, "/") + "/oauth/authorize"},
	}
	q.URL = config.AuthCodeURL(q.State, append(more, oauth2.S256ChallengeOption(q.Verifier))...)
	return q
}

// Finish checks the query of the browser's redirect and exchanges its code. The token has a refresh token:
// pass it to Source. If the user refused, the error is an *Error with the code access_denied.
func (c Connector) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := c.code(q, callback)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, formRequest(tokenPath, url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ClientID}, "resource": {c.Resource}, "code": {code},
		"code_verifier": {q.Verifier}, "redirect_uri": {c.RedirectURI},
	}), rand.Text())
}

// Finish checks the query of the browser's redirect and exchanges its code. The token is valid for 90 days
// and cannot be refreshed: pass it to oauth2.StaticTokenSource, and ask for consent again before its Expiry.
// If the user refused, the error is an *Error with the code access_denied.
func (c ConfidentialApp) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := c.code(q, callback)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, jsonRequest(http.MethodPost, tokenPath, map[string]string{
		"client_id":     c.ClientID,
		"client_secret": c.Secret.Reveal(),
		"code":          code,
		"redirect_uri":  c.RedirectURI,
		"code_verifier": q.Verifier,
	}), rand.Text())
}

var (
	errState  = errors.New("almoner: the callback has another state: it does not belong to this request")
	errIssuer = errors.New("almoner: the callback is from another issuer (RFC 9207)")
	errNoCode = errors.New("almoner: the callback has no code")
)

// code checks the redirect's parameters and returns the code (spec 4.4; RFC 9207).
func (a Application) code(q Question, callback url.Values) (string, error) {
	if q.State == "" || subtle.ConstantTimeCompare([]byte(callback.Get("state")), []byte(q.State)) != 1 {
		return "", errState
	}
	if callback.Get("iss") != strings.TrimRight(a.BaseURL, "/") {
		return "", errIssuer
	}
	if refused := callback.Get("error"); refused != "" {
		return "", &Error{
			Shape:   Flat,
			Code:    refused,
			Message: callback.Get("error_description"),
			source:  "the consent page",
		}
	}
	if callback.Get("code") == "" {
		return "", errNoCode
	}
	return callback.Get("code"), nil
}

// Revoke revokes the grant of an access token or a refresh token (RFC 7009). An unknown token is not an
// error.
func (c Connector) Revoke(ctx context.Context, token string) error {
	r := formRequest(revokePath, url.Values{"client_id": {c.ClientID}, "token": {token}})
	return c.send(ctx, r, Retries{}, nil)
}

// Revoke revokes the grant of an access token (RFC 7009). An unknown token is not an error.
func (c ConfidentialApp) Revoke(ctx context.Context, token string) error {
	r := jsonRequest(http.MethodPost, revokePath,
		map[string]string{"client_id": c.ClientID, "client_secret": c.Secret.Reveal(), "token": token})
	return c.send(ctx, r, Retries{}, nil)
}

// send sends a request that contains its own credential.
func (a Application) send(ctx context.Context, r request, retries Retries, into any) error {
	c, err := newCaller(a.BaseURL, a.HTTPClient)
	if err != nil {
		return fmt.Errorf("%w (the application's base URL)", err)
	}
	c.retries = retries
	_, err = c.do(ctx, r, into)
	return err
}

const (
	tokenPath  = "/v1/account/oauth/token"
	revokePath = "/v1/account/oauth/revoke"
	formType   = "application/x-www-form-urlencoded"
	jsonType   = "application/json"
)

// granted is a successful response of the token endpoint (contract, section 3).
type granted struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	Scope        string `json:"scope"`
	WorkspaceID  string `json:"tenant_id"`
	RefreshToken string `json:"refresh_token"`
	GrantEndsIn  int64  `json:"authorization_expires_in"` // seconds
}

const (
	extraScope     = "scope"
	extraWorkspace = "tenant_id"
	extraGrantEnds = "almoner_grant_ends"
)

// Workspace returns the workspace of a fresh token. The token's JSON does not contain it.
func Workspace(t *oauth2.Token) string {
	id, _ := t.Extra(extraWorkspace).(string)
	return id
}

// Scope returns the permissions granted to a fresh token, separated by spaces. The token's JSON does not
// contain it.
func Scope(t *oauth2.Token) string {
	scope, _ := t.Extra(extraScope).(string)
	return scope
}

// GrantEnds returns when the grant of a fresh connector token ends, regardless of refreshes, or the zero time
// if the token does not say. The token's JSON does not contain it.
func GrantEnds(t *oauth2.Token) time.Time {
	ends, _ := t.Extra(extraGrantEnds).(time.Time)
	return ends
}

var errNoToken = errors.New("almoner: the response of the token endpoint has no access token")

func (g granted) token(sent time.Time) (*oauth2.Token, error) {
	if g.AccessToken == "" {
		return nil, errNoToken
	}
	extra := map[string]any{extraScope: g.Scope, extraWorkspace: g.WorkspaceID}
	if g.GrantEndsIn > 0 {
		extra[extraGrantEnds] = sent.Add(time.Duration(g.GrantEndsIn) * time.Second)
	}
	t := oauth2.Token{
		AccessToken:  g.AccessToken,
		TokenType:    g.TokenType,
		RefreshToken: g.RefreshToken,
		Expiry:       sent.Add(time.Duration(g.ExpiresIn) * time.Second),
	}
	return t.WithExtra(extra), nil
}

// tokenRetries limits how often a token request is retried. Each try is limited to tokenWithin. Almoner accepts
// repeated requests for 60 seconds.
var tokenRetries = Retries{Most: 4, LongestWait: 5 * time.Second}

const tokenWithin = 10 * time.Second

// exchange sends a token request with an Idempotency-Key, so that it can be repeated if no response arrives.
func (a Application) exchange(ctx context.Context, r request, key string) (*oauth2.Token, error) {
	r.header.Set(keyHeader, key)
	r.idempotent, r.within = true, tokenWithin
	sent := time.Now()
	var g granted
	if err := a.send(ctx, r, tokenRetries, &g); err != nil {
		return nil, err
	}
	return g.token(sent)
}

// A Keep stores a token in place of the previous one, so that it survives a restart. It is called before the
// token is used, and called again if it returned an error.
type Keep func(ctx context.Context, t *oauth2.Token) error

// A Source returns a connector's access token and refreshes it when it has expired (C4). It implements
// oauth2.TokenSource. A process must have one Source per grant: two that refresh with the same token end the
// grant.
type Source struct {
	connector Connector
	ctx       context.Context // for its values only: a refresh is not cancelled
	keep      Keep

	mu     sync.Mutex
	token  *oauth2.Token
	key    string // Idempotency-Key of the refresh of this token
	unkept bool
	ended  error
}

// Source makes a source that starts with a token from Finish or with a stored one. The token source of
// golang.org/x/oauth2 does not send the resource when it refreshes, which Almoner requires (RFC 8707). keep
// may be nil if the grant may be lost with the process.
func (c Connector) Source(ctx context.Context, t *oauth2.Token, keep Keep) *Source {
	if keep == nil {
		keep = func(context.Context, *oauth2.Token) error { return nil }
	}
	var own oauth2.Token
	if t != nil {
		own = *t
	}
	return &Source{connector: c, ctx: context.WithoutCancel(ctx), keep: keep, token: &own}
}

var errNoRefreshToken = errors.New("almoner: no refresh token")

// Token returns a token that is valid for at least some seconds. Concurrent callers wait for one refresh, up
// to 30 seconds.
//
// An error that matches ErrConsentAgain (errors.Is) is final: the grant has ended, and later calls return the
// error without a request. After a Temporary *Error or a network error, the next call can succeed. If a response
// was lost, Token and the next call repeat the request with the same Idempotency-Key (C6).
func (s *Source) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, s.ended
	}
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	if err := s.keepIt(ctx); err != nil {
		return nil, err
	}
	if !s.token.Valid() {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
		if err := s.keepIt(ctx); err != nil {
			return nil, err
		}
	}
	token := *s.token
	return &token, nil
}

func (s *Source) refresh(ctx context.Context) error {
	if s.token.RefreshToken == "" {
		return errNoRefreshToken
	}
	if s.key == "" {
		s.key = rand.Text()
	}
	t, err := s.connector.exchange(ctx, formRequest(tokenPath, url.Values{
		"grant_type": {"refresh_token"}, "client_id": {s.connector.ClientID}, "resource": {s.connector.Resource},
		"refresh_token": {s.token.RefreshToken},
	}), s.key)
	if errors.Is(err, ErrConsentAgain) {
		s.ended = err
	}
	if err != nil {
		return err
	}
	if t.RefreshToken == "" {
		return errNoRefreshToken
	}
	s.token, s.key, s.unkept = t, "", true
	return nil
}

// keepIt stores a new token. A token that is not stored would be lost with this process, and using the
// previous one ends the grant.
func (s *Source) keepIt(ctx context.Context) error {
	if !s.unkept {
		return nil
	}
	token := *s.token
	if err := s.keep(ctx, &token); err != nil {
		return fmt.Errorf("almoner: the new refresh token could not be stored, so it is not used yet: %w", err)
	}
	s.unkept = false
	return nil
}

var _ oauth2.TokenSource = (*Source)(nil)

// A Service is an internal service, which may introspect credentials (contract, section 5).
type Service struct {
	BaseURL    string
	ClientID   string
	Secret     Secret
	HTTPClient *http.Client // nil for a client with a timeout of 30 seconds
}

// An Introspection is the current status of a credential (RFC 7662). If Active is false, the other fields are
// empty.
type Introspection struct {
	Active      bool     `json:"active"`
	Scope       string   `json:"scope"` // what was granted
	ClientID    string   `json:"client_id"`
	Subject     string   `json:"sub"`
	Expires     int64    `json:"exp"` // seconds since 1970
	IssuedAt    int64    `json:"iat"` // seconds since 1970
	Issuer      string   `json:"iss"`
	Audience    string   `json:"aud"`
	TokenType   string   `json:"token_type"`
	WorkspaceID string   `json:"tenant_id"`
	Permissions []string `json:"permissions"` // what it may do in the workspace now
}

// replayableHeader with a nil value makes http.Transport repeat a POST if the server has closed the idle connection
// that it used. A header with a nil value is not sent.
const replayableHeader = "X-Idempotency-Key"

// Introspect returns the status of an access token or a personal access token. Call it for each request: a
// result is valid for the moment only.
func (s Service) Introspect(ctx context.Context, token string) (Introspection, error) {
	c, err := newCaller(s.BaseURL, s.HTTPClient)
	if err != nil {
		return Introspection{}, err
	}
	r := formRequest("/v1/account/oauth/introspect", url.Values{"token": {token}})
	r.header[replayableHeader] = nil
	credentials := http.Request{Header: r.header}
	credentials.SetBasicAuth(url.QueryEscape(s.ClientID), url.QueryEscape(s.Secret.Reveal()))
	return fetch[Introspection](ctx, c, r)
}
