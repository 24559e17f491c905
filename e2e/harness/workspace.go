package harness

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The known permissions (contract, section 8).
const (
	APIAccess       = "account:api:access"
	ReadMembers     = "account:read:members"
	WriteMembers    = "account:write:members"
	ReadProgrammes  = "programmes:read:programmes"
	WriteProgrammes = "programmes:write:programmes"
	ReadForms       = "engage:read:forms"
	WriteForms      = "engage:write:forms"
	ReadSubmissions = "engage:read:submissions"
)

// Everything returns all known permissions.
func Everything() []string {
	var all []string
	for _, entry := range perm.All() {
		all = append(all, string(entry.ID))
	}
	return all
}

// ForConnectors returns the permissions that a connector may be granted: all but those of account (contract, section
// 8).
func ForConnectors() []string {
	return slices.DeleteFunc(Everything(), func(permission string) bool {
		return strings.HasPrefix(permission, "account:")
	})
}

// RedirectURI is the callback of applications that tests register. Nothing listens there.
const RedirectURI = "https://app.canal-lane.example/oauth/callback"

// A TestWorkspace is a workspace for one test, with an owner who holds every permission. Changes in it do not affect
// other tests.
type TestWorkspace struct {
	Workspace demo.Workspace
	Owner     demo.User
	Token     string // the owner's personal access token with every permission

	product *Product
}

// NewWorkspace creates a workspace and its owner.
func (p *Product) NewWorkspace(t testing.TB) TestWorkspace {
	t.Helper()
	o := TestWorkspace{Workspace: p.Database.Workspace(t), Owner: p.Database.User(t), product: p}
	p.Database.Join(t, o.Workspace, o.Owner, Everything()...)
	o.Token = p.Database.Token(t, o.Workspace, o.Owner, Everything()...)
	return o
}

// Member creates a member of the workspace with the permissions.
func (o TestWorkspace) Member(t testing.TB, permissions ...string) demo.User {
	t.Helper()
	user := o.product.Database.User(t)
	o.product.Database.Join(t, o.Workspace, user, permissions...)
	return user
}

// Clients returns the path where the workspace's applications are registered (spec 4.2).
func (t TestWorkspace) Clients() string { return ClientsPath(t.Workspace) }

// ClientsPath returns the path where a workspace's applications are registered (spec 4.2).
func ClientsPath(workspace demo.Workspace) string {
	return "/v1/account/tenants/" + workspace.ID + "/oauth-clients"
}

// Register registers an application through the API.
func (o TestWorkspace) Register(t testing.TB, body map[string]any) Answer {
	t.Helper()
	return o.product.As(o.Token).JSON(t, http.MethodPost, o.Clients(), body)
}

// registered registers a client, again if a store was too busy to answer in time.
func (o TestWorkspace) registered(t testing.TB, body map[string]any) map[string]any {
	t.Helper()
	var answer Answer
	await.True(t, "a client is registered", func() bool {
		answer = o.Register(t, body)
		return answer.Status != http.StatusServiceUnavailable
	})
	return answer.Wants(t, http.StatusCreated).Object(t)
}

// ConfidentialBody returns the body that registers a confidential application (spec 4.2).
func ConfidentialBody(permissions ...string) map[string]any {
	return map[string]any{
		"name":                "Gift Aid export",
		"redirectUris":        []string{RedirectURI},
		"requiredPermissions": permissions,
	}
}

// ConnectorBody returns the body that registers a connector for a resource (contract, section 5).
func ConnectorBody(resource string, permissions ...string) map[string]any {
	return map[string]any{
		"name":                "Assistant of the office",
		"redirectUris":        []string{RedirectURI},
		"requiredPermissions": permissions,
		"connectorPlatform":   "claude",
		"resource":            resource,
	}
}

// Confidential registers a confidential application. The method is its tokenEndpointAuthMethod, or "" for the
// default.
func (o TestWorkspace) Confidential(t testing.TB, method string, permissions ...string) ConfidentialApp {
	t.Helper()
	body := ConfidentialBody(permissions...)
	if method != "" {
		body["tokenEndpointAuthMethod"] = method
	}
	object := o.registered(t, body)
	id, _ := object["clientId"].(string)
	secret, _ := object["clientSecret"].(string)
	return ConfidentialApp{demo.Client{ClientID: id, ClientSecret: secret, RedirectURI: RedirectURI}, o.product}
}

// Connector registers a connector for the REST API.
func (o TestWorkspace) Connector(t testing.TB, permissions ...string) Connector {
	t.Helper()
	return o.ConnectorFor(t, o.product.BaseURL+"/v1", permissions...)
}

// ConnectorFor registers a connector for a resource.
func (o TestWorkspace) ConnectorFor(t testing.TB, resource string, permissions ...string) Connector {
	t.Helper()
	object := o.registered(t, ConnectorBody(resource, permissions...))
	id, _ := object["clientId"].(string)
	return o.product.ConnectorOf(demo.Client{
		ClientID:    id,
		RedirectURI: RedirectURI,
		Resource:    resource,
		Scope:       strings.Join(permissions, " "),
	})
}

// LimitConnectors sets the workspace's connector policy in the settings and confirms the warning.
func (p *Product) LimitConnectors(t *testing.T, ws TestWorkspace, days string, platforms, permissions []string) {
	t.Helper()
	owner := p.Person(t, ws.Owner)
	page := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID)
	form := page.FormWith(t, "input#days")
	form.Fields["platforms"], form.Fields["permissions"] = platforms, permissions
	form.Fields.Set("days", days)
	answer := owner.Submit(t, form)
	if answer.Status == http.StatusOK {
		answer = owner.Submit(t, answer.FormWith(t, "input[name=confirm]"))
	}
	owner.Follow(t, answer).WantsText(t, "The assistant rules of "+ws.Workspace.Name+" were saved.")
}

// A Connector is a public client with PKCE (spec 5.2), as the connector platforms use. Its Scope is everything that it
// may be granted.
type Connector struct {
	demo.Client
	product *Product
}

// DemoConnector returns the demo's connector for the REST API.
func (p *Product) DemoConnector() Connector { return p.ConnectorOf(p.Demo.Clients.Connector) }

// ConnectorOf returns a connector of the demo.
func (p *Product) ConnectorOf(c demo.Client) Connector { return Connector{c, p} }

// An Attempt is one authorization request of a connector.
type Attempt struct {
	Connector
	Query    url.Values // of the authorization request (spec 4.4)
	Verifier string     // of PKCE
}

// Begin returns an attempt with a new state and verifier.
func (c Connector) Begin() Attempt {
	verifier := oauth2.GenerateVerifier()
	return Attempt{Connector: c, Verifier: verifier, Query: url.Values{
		"response_type":         {"code"},
		"client_id":             {c.ClientID},
		"redirect_uri":          {c.RedirectURI},
		"resource":              {c.Resource},
		"scope":                 {c.Scope},
		"state":                 {rand.Text()},
		"code_challenge":        {oauth2.S256ChallengeFromVerifier(verifier)},
		"code_challenge_method": {"S256"},
	}}
}

// URL returns the URL of the consent page for the request.
func (a Attempt) URL() string { return a.product.AuthorizeURL(a.Query) }

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

// API returns the API without credentials.
func (c Connector) API() API { return c.product.API() }

// Post sends a form to the token endpoint, with an Idempotency-Key if one is given that is not "".
func (c Connector) Post(t testing.TB, form url.Values, key ...string) Answer {
	t.Helper()
	answer, err := c.TryPost(t, form, key...)
	if err != nil {
		t.Fatalf("%s: %v", answer.Request, err)
	}
	return answer
}

// TryPost is like Post for requests that may get no response or an incomplete one.
func (c Connector) TryPost(t testing.TB, form url.Values, key ...string) (Answer, error) {
	t.Helper()
	api := c.API()
	for _, given := range key {
		if given != "" {
			api = api.With("Idempotency-Key", given)
			c.product.secrets.Add("Idempotency-Key", given)
		}
	}
	return api.Try(t, http.MethodPost, TokenPath, formType, form.Encode())
}

// Refresh uses a refresh token, with an Idempotency-Key as Post.
func (c Connector) Refresh(t testing.TB, refreshToken string, key ...string) Answer {
	t.Helper()
	return c.Post(t, c.RefreshForm(refreshToken), key...)
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

// TokenPath is the path of the token endpoint (spec 4.3).
const TokenPath = "/v1/account/oauth/token"

// A ConfidentialApp is an application with a server, which has a client secret (spec 5.2).
type ConfidentialApp struct {
	demo.Client
	product *Product
}

// DemoConfidential returns the confidential application of the demo data.
func (p *Product) DemoConfidential() ConfidentialApp {
	return ConfidentialApp{p.Demo.Clients.Confidential, p}
}

// Request returns the query of spec 4.4 with a new state.
func (c ConfidentialApp) Request() url.Values {
	return url.Values{"client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI}, "state": {rand.Text()}}
}

// Body returns the JSON body of spec 4.3.
func (c ConfidentialApp) Body(code string) map[string]any {
	return map[string]any{
		"client_id":     c.ClientID,
		"client_secret": c.ClientSecret,
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
		"client_secret": {c.ClientSecret},
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
	demo.Client
	product *Product
}

// DemoService returns the demo's service.
func (p *Product) DemoService() Service { return Service{p.Demo.Clients.Service, p} }

// Introspect introspects a token.
func (s Service) Introspect(t testing.TB, token string) Answer {
	t.Helper()
	return s.API().Form(t, IntrospectPath, url.Values{"token": {token}})
}

// API returns the API with the service's credentials as HTTP Basic.
func (s Service) API() API {
	return s.product.API().With("Authorization", Basic(s.ClientID, s.ClientSecret))
}

// Revoke revokes a token (RFC 7009) with the connector's client id.
func (c Connector) Revoke(t testing.TB, token string) Answer {
	t.Helper()
	return c.product.API().Form(t, RevokePath, url.Values{"client_id": {c.ClientID}, "token": {token}})
}

// Revoke revokes a token (RFC 7009) with the application's credentials.
func (c ConfidentialApp) Revoke(t testing.TB, token string) Answer {
	t.Helper()
	body := map[string]any{"client_id": c.ClientID, "client_secret": c.ClientSecret, "token": token}
	return c.product.API().JSON(t, http.MethodPost, RevokePath, body)
}
