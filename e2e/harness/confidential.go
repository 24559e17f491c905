package harness

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"testing"
)

// TokenPath is the token endpoint's path (spec 4.3).
const TokenPath = "/v1/account/oauth/token"

// A ConfidentialApp is an application with a server, which keeps a secret (spec 5.2).
type ConfidentialApp struct {
	ClientID    string
	Secret      string
	RedirectURI string

	product *Product
}

// DemoConfidential is the demo's confidential application.
func (p *Product) DemoConfidential() ConfidentialApp {
	c := p.Demo.Clients.Confidential
	return ConfidentialApp{ClientID: c.ClientID, Secret: c.ClientSecret, RedirectURI: c.RedirectURI, product: p}
}

// At is the application at the product.
func (a ConfidentialApp) At(p *Product) ConfidentialApp {
	a.product = p
	return a
}

// Request is the query of spec 4.4 with a fresh state.
func (a ConfidentialApp) Request() url.Values {
	return url.Values{"client_id": {a.ClientID}, "redirect_uri": {a.RedirectURI}, "state": {rand.Text()}}
}

// Body is the JSON body of spec 4.3.
func (a ConfidentialApp) Body(code string) map[string]any {
	return map[string]any{
		"client_id":     a.ClientID,
		"client_secret": a.Secret,
		"code":          code,
		"redirect_uri":  a.RedirectURI,
	}
}

// Exchange posts a body to the token endpoint: a value to encode, or text to send as it is.
func (a ConfidentialApp) Exchange(t testing.TB, body any) Answer {
	t.Helper()
	return a.product.API().JSON(t, http.MethodPost, TokenPath, body)
}

// Code lets the person consent, and returns the code.
func (a ConfidentialApp) Code(t testing.TB, person *Person) string {
	t.Helper()
	return person.Consent(t, a.Request()).Approve(t)
}

// Connect lets the person consent and exchanges the code.
func (a ConfidentialApp) Connect(t testing.TB, person *Person) Tokens {
	t.Helper()
	return a.Exchange(t, a.Body(a.Code(t, person))).Tokens(t)
}

// Tokens are what the token endpoint answers (contract, section 3).
type Tokens struct {
	AccessToken      string `json:"access_token"`
	TokenType        string `json:"token_type"`
	ExpiresIn        int    `json:"expires_in"` // seconds
	Scope            string `json:"scope"`
	WorkspaceID      string `json:"tenant_id"`
	RefreshToken     string `json:"refresh_token"`
	AuthorizationEnd int    `json:"authorization_expires_in"` // seconds
}

// Tokens reads a success of the token endpoint.
func (a Answer) Tokens(t testing.TB) Tokens {
	t.Helper()
	var tokens Tokens
	a.Wants(t, http.StatusOK).Into(t, &tokens)
	if tokens.AccessToken == "" {
		t.Fatalf("no access token:\n%s", a)
	}
	return tokens
}

// Form is the standard form of RFC 6749, section 4.1.3, with the secret in it (client_secret_post).
func (a ConfidentialApp) Form(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "client_id": {a.ClientID}, "client_secret": {a.Secret}, "code": {code},
		"redirect_uri": {a.RedirectURI},
	}
}

// Basic is the value of an Authorization header (RFC 6749, section 2.3.1).
func Basic(clientID, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(clientID)+":"+url.QueryEscape(secret)))
}
