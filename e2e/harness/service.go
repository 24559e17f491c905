package harness

import (
	"net/http"
	"net/url"
	"testing"
)

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
func (a ConfidentialApp) Revoke(t testing.TB, token string) Answer {
	t.Helper()
	body := map[string]any{"client_id": a.ClientID, "client_secret": a.Secret, "token": token}
	return a.product.API().JSON(t, http.MethodPost, RevokePath, body)
}
