package harness

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
)

// OAuth2 returns the application's configuration for golang.org/x/oauth2.
func (a ConfidentialApp) OAuth2(p *Product, style oauth2.AuthStyle) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     a.ClientID,
		ClientSecret: a.Secret,
		RedirectURL:  a.RedirectURI,
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
	return context.WithValue(
		ctx,
		oauth2.HTTPClient,
		&http.Client{Transport: resourceSender(c.Resource), Timeout: timeout},
	)
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
