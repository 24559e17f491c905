package harness

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
)

// A Connector is a public client with PKCE (spec 5.2), as the connector platforms use.
type Connector struct {
	ClientID    string
	RedirectURI string
	Resource    string
	Scope       string // everything it may be granted

	product *Product
}

// DemoConnector returns the demo's connector for the REST API.
func (p *Product) DemoConnector() Connector { return p.connector(p.Demo.Clients.Connector) }

// DemoMCP returns the demo's connector for the MCP endpoint.
func (p *Product) DemoMCP() Connector { return p.connector(p.Demo.Clients.MCP) }

func (p *Product) connector(c demo.Connector) Connector {
	return Connector{
		ClientID:    c.ClientID,
		RedirectURI: c.RedirectURI,
		Resource:    c.Resource,
		Scope:       c.Scope,
		product:     p,
	}
}

// An Attempt is one authorization request of a connector.
type Attempt struct {
	Connector
	Query    url.Values // of the authorization request (spec 4.4)
	Verifier string     // of PKCE
}

// Begin returns an attempt with a new state and verifier.
func (c Connector) Begin() Attempt {
	verifier := rand.Text() + rand.Text() // 52 characters of the alphabet of RFC 7636, section 4.1
	return Attempt{Connector: c, Verifier: verifier, Query: url.Values{
		"response_type":         {"code"},
		"client_id":             {c.ClientID},
		"redirect_uri":          {c.RedirectURI},
		"resource":              {c.Resource},
		"scope":                 {c.Scope},
		"state":                 {rand.Text()},
		"code_challenge":        {Challenge(verifier)},
		"code_challenge_method": {"S256"},
	}}
}

// Challenge returns the S256 challenge of a verifier (RFC 7636, section 4.2).
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// CodeForm returns the form of spec 4.3 that exchanges the code.
func (a Attempt) CodeForm(code string) url.Values {
	return url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {a.ClientID},
		"resource":      {a.Resource},
		"code":          {code},
		"code_verifier": {a.Verifier},
		"redirect_uri":  {a.RedirectURI},
	}
}

// RefreshForm returns the form of spec 4.3 that refreshes.
func (c Connector) RefreshForm(refreshToken string) url.Values {
	return url.Values{
		"grant_type":    {"refresh_token"},
		"client_id":     {c.ClientID},
		"resource":      {c.Resource},
		"refresh_token": {refreshToken},
	}
}

// Post sends a form to the token endpoint.
func (c Connector) Post(t testing.TB, form url.Values) Answer {
	t.Helper()
	return c.product.API().Form(t, TokenPath, form)
}

// Refresh uses a refresh token.
func (c Connector) Refresh(t testing.TB, refreshToken string) Answer {
	t.Helper()
	return c.Post(t, c.RefreshForm(refreshToken))
}

// Code returns the code after the person has consented to the attempt.
func (a Attempt) Code(t testing.TB, person *Person) string {
	t.Helper()
	return person.Consent(t, a.Query).Approve(t)
}

// Connect exchanges a code after the person has consented.
func (c Connector) Connect(t testing.TB, person *Person) Tokens {
	t.Helper()
	attempt := c.Begin()
	return attempt.Post(t, attempt.CodeForm(attempt.Code(t, person))).Tokens(t)
}

// At returns the connector with requests sent to another product.
func (c Connector) At(p *Product) Connector {
	c.product = p
	return c
}
