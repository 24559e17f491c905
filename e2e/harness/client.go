package harness

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/client"
)

// Client returns a Go client of a program that acts in the workspace.
func (p *Product) Client(
	t testing.TB, workspace demo.Workspace, tokens oauth2.TokenSource, options ...client.Option,
) *client.Client {
	t.Helper()
	return p.clientAt(t, p.BaseURL, workspace.ID, tokens, options...)
}

func (p *Product) clientAt(
	t testing.TB, base, workspace string, tokens oauth2.TokenSource, options ...client.Option,
) *client.Client {
	t.Helper()
	c, err := client.New(base, workspace, tokens,
		append([]client.Option{client.WithHTTPClient(p.HTTPClient())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Client returns a Go client with the bearer token and the tenant header that this caller sends.
func (a API) Client(t testing.TB) *client.Client {
	t.Helper()
	return a.product.clientAt(t, a.base, a.header.Get("X-Tenant-Id"),
		Bearer(strings.TrimPrefix(a.header.Get("Authorization"), "Bearer ")))
}

// Bearer returns a token source for a token that does not change, such as a personal access token.
func Bearer(token string) oauth2.TokenSource {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
}

// Application returns the connector in the form that the Go client takes.
func (c Connector) Application() client.Connector {
	return client.Connector{
		Application: c.product.application(c.ClientID, c.RedirectURI),
		Resource:    c.Resource,
		Scopes:      strings.Fields(c.Scope),
	}
}

// Application returns the application in the form that the Go client takes.
func (c ConfidentialApp) Application() client.ConfidentialApp {
	return client.ConfidentialApp{
		Application: c.product.application(c.ClientID, c.RedirectURI),
		Secret:      client.Secret(c.Secret),
	}
}

func (p *Product) application(id, redirectURI string) client.Application {
	return client.Application{
		BaseURL:     p.BaseURL,
		AppURL:      p.AppURL,
		ClientID:    id,
		RedirectURI: redirectURI,
		HTTPClient:  p.HTTPClient(),
	}
}

// HTTPClient returns an HTTP client for programs that bring their own. The secrets in its traffic are recorded.
func (p *Product) HTTPClient() *http.Client {
	return &http.Client{Timeout: timeout, Transport: secretRecorder{p.client.Transport, p.secrets}}
}

// secretRecorder records every secret in the traffic.
type secretRecorder struct {
	next    http.RoundTripper
	secrets *Secrets
}

// RoundTrip sends the request and reads the whole response before it returns it.
func (s secretRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	s.secrets.AddAll(request.Header.Get("Authorization"))
	response, err := s.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	s.secrets.AddAll(string(content))
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, nil
}

// OAuth2 returns the application's configuration for golang.org/x/oauth2.
func (c ConfidentialApp) OAuth2(p *Product, style oauth2.AuthStyle) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     c.ClientID,
		ClientSecret: c.Secret,
		RedirectURL:  c.RedirectURI,
		Endpoint:     p.endpoint(style),
	}
}

// OAuth2 returns the connector's configuration for golang.org/x/oauth2.
func (c Connector) OAuth2() *oauth2.Config {
	return &oauth2.Config{
		ClientID:    c.ClientID,
		RedirectURL: c.RedirectURI,
		Scopes:      strings.Fields(c.Scope),
		Endpoint:    c.product.endpoint(oauth2.AuthStyleInParams),
	}
}

func (p *Product) endpoint(style oauth2.AuthStyle) oauth2.Endpoint {
	return oauth2.Endpoint{AuthURL: p.AppURL + "/oauth/authorize", TokenURL: p.BaseURL + TokenPath, AuthStyle: style}
}

// WithResource returns a context in which golang.org/x/oauth2 sends the connector's resource with every token
// request. The library has no option for this on refresh.
func (c Connector) WithResource(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: resourceSender(c.Resource), Timeout: timeout})
}

type resourceSender string

// RoundTrip adds the resource to the form.
func (r resourceSender) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body == nil || request.Method != http.MethodPost {
		return http.DefaultTransport.RoundTrip(request)
	}
	content, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_ = request.Body.Close()
	form, err := url.ParseQuery(string(content))
	if err != nil {
		return nil, err
	}
	form.Set("resource", string(r))
	body := form.Encode()
	request = request.Clone(request.Context())
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader([]byte(body))), int64(len(body))
	return http.DefaultTransport.RoundTrip(request)
}
