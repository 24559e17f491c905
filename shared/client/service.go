package client

import (
	"context"
	"net/http"
	"net/url"
)

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
