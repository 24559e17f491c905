package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
)

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

func (a Application) exchangeForm(ctx context.Context, form url.Values, key string) (*oauth2.Token, error) {
	return a.exchange(ctx, formType, []byte(form.Encode()), key)
}

func (a Application) exchangeJSON(ctx context.Context, body map[string]string) (*oauth2.Token, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return a.exchange(ctx, jsonType, content, rand.Text())
}

// A token request is retried up to tokenRetries.Most times. Each try is limited to tokenWithin. Almoner accepts
// repeated requests for 60 seconds.
var tokenRetries = Retries{Most: 4, LongestWait: 5 * time.Second}

const tokenWithin = 10 * time.Second

// exchange sends a token request with an Idempotency-Key, so that it can be repeated if no response arrives.
func (a Application) exchange(ctx context.Context, contentType string, body []byte, key string) (*oauth2.Token, error) {
	c, err := a.caller()
	if err != nil {
		return nil, err
	}
	c.retries = tokenRetries
	sent := time.Now()
	var g granted
	_, err = c.do(ctx, request{
		method: http.MethodPost,
		path:   tokenPath,
		body:   body,
		header: http.Header{"Content-Type": {contentType}, keyHeader: {key}},
		again:  true,
		within: tokenWithin,
	}, &g)
	if err != nil {
		return nil, err
	}
	return g.token(sent)
}

func (a Application) postJSON(ctx context.Context, path string, body map[string]string, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.post(ctx, path, jsonType, content, into)
}

// post sends a request that contains its own credential, without retries.
func (a Application) post(ctx context.Context, path, contentType string, body []byte, into any) error {
	c, err := a.caller()
	if err != nil {
		return err
	}
	_, err = c.do(
		ctx,
		request{method: http.MethodPost, path: path, body: body, header: http.Header{"Content-Type": {contentType}}},
		into,
	)
	return err
}
