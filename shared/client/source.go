package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"golang.org/x/oauth2"
)

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
	t, err := s.connector.exchangeForm(ctx, url.Values{
		"grant_type": {"refresh_token"}, "client_id": {s.connector.ClientID}, "resource": {s.connector.Resource},
		"refresh_token": {s.token.RefreshToken},
	}, s.key)
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
	base, err := address(s.BaseURL)
	if err != nil {
		return Introspection{}, err
	}
	r := request{
		method: http.MethodPost,
		path:   "/v1/account/oauth/introspect",
		header: http.Header{"Content-Type": {formType}, replayableHeader: nil},
		body:   []byte(url.Values{"token": {token}}.Encode()),
	}
	credentials := http.Request{Header: r.header}
	credentials.SetBasicAuth(url.QueryEscape(s.ClientID), url.QueryEscape(s.Secret.Reveal()))
	var out Introspection
	_, err = (&caller{base: base, http: withoutRedirects(s.HTTPClient), agent: DefaultUserAgent}).do(ctx, r, &out)
	return out, err
}
