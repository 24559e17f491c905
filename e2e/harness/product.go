package harness

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Product is a running Almoner as one test uses it. Its actors are those of the specification: a Person at a
// browser, a ConfidentialApp, a Connector, a Service, and API callers. They use HTTP only. What HTTP cannot arrange
// (a membership that ends, a feature that is switched off, time that passes) the Database type does as the owner of the
// database.
//
// Actors do not check anything: they return an Answer or a Page, and the test states what it expects.
type Product struct {
	BaseURL  string // of the API, and the issuer
	AppURL   string // of login, consent and settings
	Demo     demo.Demo
	Database *Database

	secrets *Secrets
	client  *http.Client
}

// timeout is the timeout of a request. The product's own limits are far below it.
const timeout = await.Long

// NewProduct returns the product for a test. Every secret that its actors use is recorded in secrets.
func NewProduct(t testing.TB, s *stack.Stack, secrets *Secrets) *Product {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return NewProductWithTransport(t, s, secrets, transport)
}

// NewProductWithTransport is like NewProduct with requests sent by the transport.
func NewProductWithTransport(t testing.TB, s *stack.Stack, secrets *Secrets, transport http.RoundTripper) *Product {
	t.Helper()
	recordOf(s).secrets.Store(secrets, nil)
	secrets.noteStack(s)
	d := s.Demo
	for _, user := range []demo.User{d.Users.Owner, d.Users.Reader, d.Users.Registrar, d.Users.Outsider} {
		secrets.Add("password", user.Password)
	}
	return &Product{
		BaseURL:  s.BaseURL,
		AppURL:   s.AppURL,
		Demo:     d,
		Database: newDatabase(t, s.DatabaseURL, secrets),
		secrets:  secrets,
		client:   &http.Client{Timeout: timeout, CheckRedirect: followNothing, Transport: watched(t, s, transport)},
	}
}

// followNothing returns every redirect to the test.
func followNothing(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// API returns the base URL without credentials.
func (p *Product) API() API { return API{product: p, base: p.BaseURL, header: http.Header{}} }

// App returns the app URL without credentials or cookies.
func (p *Product) App() API { return API{product: p, base: p.AppURL, header: http.Header{}} }

// As returns the API with a bearer token, for account routes.
func (p *Product) As(token string) API { return p.API().With("Authorization", "Bearer "+token) }

// In returns the API with a bearer token and the tenant header.
func (p *Product) In(workspace demo.Workspace, token string) API {
	return p.As(token).With("X-Tenant-Id", workspace.ID)
}

// roundTrip sends one request and reads the whole response. It records the secrets in both.
func (p *Product) roundTrip(
	t testing.TB,
	client *http.Client,
	method, address string,
	header http.Header,
	body string,
) Answer {
	t.Helper()
	answer, err := p.try(t, client, method, address, header, body)
	if err != nil {
		t.Fatalf("%s: %v", answer.Request, err)
	}
	return answer
}

func (p *Product) try(
	t testing.TB,
	client *http.Client,
	method, address string,
	header http.Header,
	body string,
) (Answer, error) {
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		return Answer{Request: method}, err
	}
	maps.Copy(request.Header, header)
	if host := header.Get("Host"); host != "" {
		request.Host = host
	}
	answer := Answer{Request: method + " " + request.URL.Path}
	p.secrets.AddAll(body + " " + address + " " + header.Get("Authorization"))
	response, err := client.Do(request)
	if err != nil {
		return answer, withoutAddress(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer.Status, answer.Header = response.StatusCode, response.Header
	if answer.Body, err = io.ReadAll(response.Body); err != nil {
		return answer, err
	}
	p.secrets.AddAll(string(answer.Body) + " " + answer.Header.Get("Location"))
	for _, cookie := range response.Cookies() {
		p.secrets.Add("cookie "+cookie.Name, cookie.Value)
	}
	return answer, nil
}
