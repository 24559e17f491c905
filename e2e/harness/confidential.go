package harness

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"testing"
)

// TokenPath is the path of the token endpoint (spec 4.3).
const TokenPath = "/v1/account/oauth/token"

// A ConfidentialApp is an application with a server, which has a client secret (spec 5.2).
type ConfidentialApp struct {
	ClientID    string
	Secret      string
	RedirectURI string

	product *Product
}

// DemoConfidential returns the confidential application of the demo data.
func (p *Product) DemoConfidential() ConfidentialApp {
	c := p.Demo.Clients.Confidential
	return ConfidentialApp{ClientID: c.ClientID, Secret: c.ClientSecret, RedirectURI: c.RedirectURI, product: p}
}

// At returns the application with requests sent to another product.
func (c ConfidentialApp) At(p *Product) ConfidentialApp {
	c.product = p
	return c
}

// Request returns the query of spec 4.4 with a new state.
func (c ConfidentialApp) Request() url.Values {
	return url.Values{"client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI}, "state": {rand.Text()}}
}

// Body returns the JSON body of spec 4.3.
func (c ConfidentialApp) Body(code string) map[string]any {
	return map[string]any{
		"client_id":     c.ClientID,
		"client_secret": c.Secret,
		"code":          code,
		"redirect_uri":  c.RedirectURI,
	}
}

// Exchange posts a body to the token endpoint. A string is sent unchanged.
func (c ConfidentialApp) Exchange(t testing.TB, body any) Answer {
	t.Helper()
	return c.product.API().JSON(t, http.MethodPost, TokenPath, body)
}

// Code returns the code after the person has consented.
func (c ConfidentialApp) Code(t testing.TB, person *Person) string {
	t.Helper()
	return person.Consent(t, c.Request()).Approve(t)
}

// Connect exchanges a code after the person has consented.
func (c ConfidentialApp) Connect(t testing.TB, person *Person) Tokens {
	t.Helper()
	return c.Exchange(t, c.Body(c.Code(t, person))).Tokens(t)
}

// Tokens is the token endpoint's response (contract, section 3).
type Tokens struct {
	AccessToken      string `json:"access_token"`
	TokenType        string `json:"token_type"`
	ExpiresIn        int    `json:"expires_in"` // seconds
	Scope            string `json:"scope"`
	WorkspaceID      string `json:"tenant_id"`
	RefreshToken     string `json:"refresh_token"`
	AuthorizationEnd int    `json:"authorization_expires_in"` // seconds
}

// Tokens decodes a successful response of the token endpoint.
func (a Answer) Tokens(t testing.TB) Tokens {
	t.Helper()
	var tokens Tokens
	a.Wants(t, http.StatusOK).Into(t, &tokens)
	if tokens.AccessToken == "" {
		t.Fatalf("no access token:\n%s", a)
	}
	return tokens
}

// Form returns the form of RFC 6749, section 4.1.3, including the secret (client_secret_post).
func (c ConfidentialApp) Form(code string) url.Values {
	return url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {c.ClientID},
		"client_secret": {c.Secret},
		"code":          {code},
		"redirect_uri":  {c.RedirectURI},
	}
}

// Basic returns the value of an Authorization header (RFC 6749, section 2.3.1).
func Basic(clientID, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(clientID)+":"+url.QueryEscape(secret)))
}

// The paths of contract, section 5, for revocation and introspection.
const (
	RevokePath     = "/v1/account/oauth/revoke"
	IntrospectPath = "/v1/account/oauth/introspect"
)

// A Service is an internal service, which may introspect (contract, section 5).
type Service struct {
	ClientID string
	Secret   string

	product *Product
}

// DemoService returns the demo's service.
func (p *Product) DemoService() Service {
	c := p.Demo.Clients.Service
	return Service{ClientID: c.ClientID, Secret: c.ClientSecret, product: p}
}

// Introspect introspects a token.
func (s Service) Introspect(t testing.TB, token string) Answer {
	t.Helper()
	return s.API().Form(t, IntrospectPath, url.Values{"token": {token}})
}

// API returns the API with the service's credentials as HTTP Basic.
func (s Service) API() API { return s.product.API().With("Authorization", Basic(s.ClientID, s.Secret)) }

// Revoke revokes a token (RFC 7009) with the connector's client id.
func (c Connector) Revoke(t testing.TB, token string) Answer {
	t.Helper()
	return c.product.API().Form(t, RevokePath, url.Values{"client_id": {c.ClientID}, "token": {token}})
}

// Revoke revokes a token (RFC 7009) with the application's credentials.
func (c ConfidentialApp) Revoke(t testing.TB, token string) Answer {
	t.Helper()
	body := map[string]any{"client_id": c.ClientID, "client_secret": c.Secret, "token": token}
	return c.product.API().JSON(t, http.MethodPost, RevokePath, body)
}
