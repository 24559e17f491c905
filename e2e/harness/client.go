package harness

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/client"
)

// Client returns a Go client of a program that acts in the workspace.
func (p *Product) Client(
	t testing.TB,
	workspace demo.Workspace,
	tokens oauth2.TokenSource,
	options ...client.Option,
) *client.Client {
	t.Helper()
	return p.clientAt(t, p.BaseURL, workspace.ID, tokens, options...)
}

func (p *Product) clientAt(
	t testing.TB,
	base, workspace string,
	tokens oauth2.TokenSource,
	options ...client.Option,
) *client.Client {
	t.Helper()
	c, err := client.New(
		base,
		workspace,
		tokens,
		append([]client.Option{client.WithHTTPClient(p.HTTPClient())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Client returns a Go client with the bearer token and the tenant header that this caller sends.
func (a API) Client(t testing.TB) *client.Client {
	t.Helper()
	return a.product.clientAt(
		t,
		a.base,
		a.header.Get("X-Tenant-Id"),
		Bearer(strings.TrimPrefix(a.header.Get("Authorization"), "Bearer ")),
	)
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
func (a ConfidentialApp) Application() client.ConfidentialApp {
	return client.ConfidentialApp{
		Application: a.product.application(a.ClientID, a.RedirectURI),
		Secret:      client.Secret(a.Secret),
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
func (n secretRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	n.secrets.AddAll(request.Header.Get("Authorization"))
	response, err := n.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	n.secrets.AddAll(string(content))
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, nil
}
