package harness

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
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

// NewKey returns an Idempotency-Key.
func NewKey() string { return rand.Text() }

// RefreshWith uses a refresh token, with an Idempotency-Key unless that is "".
func (c Connector) RefreshWith(t testing.TB, refreshToken, key string) Answer {
	t.Helper()
	return c.PostWith(t, c.RefreshForm(refreshToken), key)
}

// PostWith sends a form to the token endpoint with an Idempotency-Key, unless that is "".
func (c Connector) PostWith(t testing.TB, form url.Values, key string) Answer {
	t.Helper()
	answer, err := c.TryPostWith(t, form, key)
	if err != nil {
		t.Fatalf("%s: %v", answer.Request, err)
	}
	return answer
}

// TryPostWith is like PostWith for requests that may get no response or an incomplete one.
func (c Connector) TryPostWith(t testing.TB, form url.Values, key string) (Answer, error) {
	t.Helper()
	api := c.product.API()
	if key != "" {
		api = api.With("Idempotency-Key", key)
		c.product.secrets.Add("Idempotency-Key", key)
	}
	return api.Try(t, http.MethodPost, TokenPath, formType, form.Encode())
}

// ListPath is the route with which tests check whether an access token works.
const ListPath = "/v1/programmes/programmes"

// WantsRevoked checks that these tokens of one grant no longer work.
func (c Connector) WantsRevoked(t testing.TB, tokens ...Tokens) {
	t.Helper()
	for _, token := range tokens {
		c.List(t, token).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	for _, token := range tokens {
		c.Refresh(t, token.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
}

// WantsWorking checks that the tokens work, and returns the refreshed ones.
func (c Connector) WantsWorking(t testing.TB, tokens Tokens) Tokens {
	t.Helper()
	c.List(t, tokens).Wants(t, http.StatusOK)
	return c.Refresh(t, tokens.RefreshToken).Tokens(t)
}

// List lists programmes with an access token in its workspace.
func (c Connector) List(t testing.TB, tokens Tokens) Answer {
	t.Helper()
	return c.product.As(tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).Get(t, ListPath)
}

// TryPost is like Post for requests that may get no response.
func (c Connector) TryPost(t testing.TB, form url.Values) (Answer, error) {
	t.Helper()
	return c.product.API().Try(t, http.MethodPost, TokenPath, formType, form.Encode())
}

// TryList is like List for requests that may get no response.
func (c Connector) TryList(t testing.TB, tokens Tokens) (Answer, error) {
	t.Helper()
	return c.product.As(tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).
		Try(t, http.MethodGet, ListPath, "", "")
}

// TryRevoke is like Revoke for requests that may get no response.
func (c Connector) TryRevoke(t testing.TB, token string) (Answer, error) {
	t.Helper()
	return c.product.API().
		Try(t, http.MethodPost, RevokePath, formType, url.Values{"client_id": {c.ClientID}, "token": {token}}.Encode())
}

// TryCode is like Code during an outage. It returns "" if a page reports that a service is unavailable.
func (a Attempt) TryCode(t testing.TB, person *Person) string {
	t.Helper()
	page := person.Arrive(t, a.product.AuthorizeURL(a.Query))
	if !page.IsConsent() {
		return ""
	}
	if page = page.Press(t, "approve"); page.Status >= http.StatusInternalServerError {
		return ""
	}
	return page.Callback(t).Code()
}

// TrySubmit is like Submit for requests that may get no response.
func (p *Person) TrySubmit(t testing.TB, form Form) (Page, error) {
	t.Helper()
	header := p.Header.Clone()
	header.Set("Content-Type", formType)
	answer, err := p.product.try(t, p.client, http.MethodPost, form.Action, header, form.Fields.Encode())
	return newPage(t, p, form.Action, answer), err
}

// TryOpen is like Open for requests that may get no response.
func (p *Person) TryOpen(t testing.TB, address string) (Page, error) {
	t.Helper()
	answer, err := p.product.try(t, p.client, http.MethodGet, address, p.Header.Clone(), "")
	return newPage(t, p, address, answer), err
}

// TryExchange is like Exchange for requests that may get no response.
func (c ConfidentialApp) TryExchange(t testing.TB, code string) (Answer, error) {
	t.Helper()
	body, err := json.Marshal(c.Body(code))
	if err != nil {
		t.Fatal(err)
	}
	return c.product.API().Try(t, http.MethodPost, TokenPath, "application/json", string(body))
}
