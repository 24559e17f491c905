package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// clientConnector returns the connector in the form that the Go client takes.
func clientConnector(p *harness.Product, c harness.Connector) client.Connector {
	return client.Connector{
		Application: clientApplication(p, c.ClientID, c.RedirectURI),
		Resource:    c.Resource,
		Scopes:      strings.Fields(c.Scope),
	}
}

func clientApplication(p *harness.Product, id, redirectURI string) client.Application {
	return client.Application{
		BaseURL:     p.BaseURL,
		AppURL:      p.AppURL,
		ClientID:    id,
		RedirectURI: redirectURI,
		HTTPClient:  p.HTTPClient(),
	}
}

// oauth2App returns the application's configuration for golang.org/x/oauth2.
func oauth2App(p *harness.Product, c harness.ConfidentialApp, style oauth2.AuthStyle) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     c.ClientID,
		ClientSecret: c.ClientSecret,
		RedirectURL:  c.RedirectURI,
		Endpoint:     oauth2Endpoint(p, style),
	}
}

// oauth2Connector returns the connector's configuration for golang.org/x/oauth2.
func oauth2Connector(p *harness.Product, c harness.Connector) *oauth2.Config {
	return &oauth2.Config{
		ClientID:    c.ClientID,
		RedirectURL: c.RedirectURI,
		Scopes:      strings.Fields(c.Scope),
		Endpoint:    oauth2Endpoint(p, oauth2.AuthStyleInParams),
	}
}

func oauth2Endpoint(p *harness.Product, style oauth2.AuthStyle) oauth2.Endpoint {
	return oauth2.Endpoint{
		AuthURL:   p.AppURL + "/oauth/authorize",
		TokenURL:  p.BaseURL + harness.TokenPath,
		AuthStyle: style,
	}
}

// withResource returns a context in which golang.org/x/oauth2 sends the connector's resource with every token
// request. The library has no option for this on refresh.
func withResource(ctx context.Context, c harness.Connector) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: resourceSender(c.Resource), Timeout: await.Long})
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
