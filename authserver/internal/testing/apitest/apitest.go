// Package apitest serves authserver to tests, built by app.New, on a real listener with a real Postgres and a real
// Redis, and sends it requests as clients do. The tests of a process share one service (Shared); those that disturb
// others have their own (Own). Package browsertest opens its pages.
package apitest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The base URLs and the resources of the deployment.
const (
	Issuer = "https://api.example.org"
	AppURL = "https://app.example.org"
	REST   = Issuer + "/v1"
	MCP    = Issuer + "/mcp"
)

// Paths of the endpoints.
const (
	TokenPath      = "/v1/account/oauth/token"
	RevokePath     = "/v1/account/oauth/revoke"
	IntrospectPath = "/v1/account/oauth/introspect"
)

// A Server is what a test sees of a service: a workspace, and a folder on the platform's website.
type Server struct {
	*service
	t       testing.TB
	Fixture *fixture.Fixture
	Redis   *localstore.Redis     // nil if the service is shared
	Clients *testkit.MetadataHost // serves metadata documents of clients
	address string                // from which requests to a shared service seem to come
}

// A service is authserver over real stores, built by app.New.
type service struct {
	app.Parts
	URL  string
	Log  *testkit.Log
	Uses *Uses
	Keys credential.Secret // in the format of ALMONER_KEYS

	Config app.Config
	// FailuresAt is the time at which the clock of the limiter of failures stands still; nil while it runs.
	FailuresAt atomic.Pointer[time.Time]

	shift atomic.Int64 // of the clock, in nanoseconds
}

// A Change changes the configuration of a Server, which will be served at url.
type Change func(c *app.Config, url string)

var running = testkit.Once(func(t testing.TB) *Server { return Own(t, behindProxy) })

func behindProxy(c *app.Config, _ string) { c.TrustedProxies = "127.0.0.1,::1" }

// Shared returns a new workspace of the service that the tests of this process share. Other tests use the service at
// the same time. The test's requests come from an address of its own.
func Shared(t testing.TB) *Server { t.Helper(); return running(t).For(t) }

// For returns a new workspace of the same service for another test.
func (s *Server) For(t testing.TB) *Server {
	t.Helper()
	other := &Server{service: s.service, t: t, Fixture: s.Fixture.For(t), Clients: s.Clients.For(t)}
	other.address = NewAddress()
	return other
}

// NewAddress returns a random private IPv4 address.
func NewAddress() string {
	part := make([]byte, 3)
	_, _ = rand.Read(part) // never fails (crypto/rand)
	return netip.AddrFrom4([4]byte{10, part[0], part[1], part[2]}).String()
}

// Own serves a Server of this test alone, which may change its configuration and its clock, or stop its stores.
func Own(t testing.TB, changes ...Change) *Server {
	t.Helper()
	s := New(t)
	s.Serve(changes...)
	s.must(s.Keyring.Load(t.Context()))
	return s
}

// New returns a Server of this test alone with empty stores, which Serve serves.
func New(t testing.TB) *Server {
	t.Helper()
	return &Server{
		service: &service{Log: &testkit.Log{}, Uses: &Uses{}},
		t:       t,
		Fixture: fixture.New(t),
		Redis:   testkit.NewRedis(t),
		Clients: testkit.NewMetadataHost(t),
	}
}

// mustOwn fails a test that would disturb others.
func (s *Server) mustOwn() {
	s.t.Helper()
	if s.address != "" {
		s.t.Fatal("other tests use this service: start it with Own")
	}
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Serve builds the service and serves it until the test ends.
func (s *Server) Serve(changes ...Change) {
	s.t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	s.Keys = credential.Secret(base64.RawURLEncoding.EncodeToString(key))
	server := httptest.NewUnstartedServer(nil)
	s.URL = "http://" + server.Listener.Addr().String()
	s.Config = app.Config{
		BaseURL:          Issuer,
		AppURL:           AppURL,
		DatabaseURL:      credential.Secret(s.Fixture.Database.Authserver),
		RedisURL:         credential.Secret(s.Redis.URL),
		Keys:             s.Keys,
		StoreWait:        testkit.StoreWait,
		ClientDomains:    s.Clients.Name() + "=claude",
		ClientDocumentCA: s.Clients.PEM(),
	}
	for _, change := range changes {
		change(&s.Config, s.URL)
	}
	log := slog.New(slog.NewTextHandler(s.Log, nil))
	built, err := app.New(s.t.Context(), s.Config, log, func(o *app.Options) {
		o.Now, o.FailuresClock, o.Uses, o.Cost = s.Now, s.failuresNow, s.Uses, session.LowestCost()
	})
	s.must(err)
	s.t.Cleanup(built.Close)
	server.Config.Handler = built.Handler
	server.Start()
	s.t.Cleanup(server.Close)
	s.Parts = built.Parts
}

// Now returns the time of the server under test.
func (s *Server) Now() time.Time { return time.Now().Add(time.Duration(s.shift.Load())) }

// Wait moves the clock of the server under test. The clocks of the stores do not change.
func (s *Server) Wait(d time.Duration) {
	s.t.Helper()
	s.mustOwn()
	s.shift.Add(int64(d))
}

// CutPostgres disconnects every client from the database until the returned function is called.
func (s *Server) CutPostgres() (restore func()) {
	s.t.Helper()
	s.mustOwn()
	restoreDatabase := s.Fixture.Database.Cut(s.t)
	return func() {
		restoreDatabase()
		s.Fixture.Owner.Reset()
	}
}

// Count runs a query for one number as the owner.
func (s *Server) Count(query string, args ...any) int {
	s.t.Helper()
	var n int
	s.must(s.Fixture.Owner.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

// Uses counts the uses of credentials.
type Uses struct{ seen atomic.Int64 }

// Record implements the interface of the endpoints.
func (u *Uses) Record(standing.Standing) { u.seen.Add(1) }

// Seen returns how many uses were recorded.
func (u *Uses) Seen() int { return int(u.seen.Load()) }

// An Answer is a response.
type Answer = fuzzkit.Answer

// Send sends a request to a path of the server and does not follow redirects. headers are pairs of name and value.
func (s *Server) Send(method, path, body string, headers ...string) Answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	s.must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	if s.address != "" && request.Header.Get("X-Forwarded-For") == "" {
		request.Header.Set("X-Forwarded-For", s.address)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	s.must(err)
	return Answer{Status: response.StatusCode, Header: response.Header, Body: string(content)}
}

// Form posts pairs of name and value as a form.
func (s *Server) Form(path string, pairs ...string) Answer {
	s.t.Helper()
	return s.FormWith(path, nil, pairs...)
}

// FormWith is Form with headers.
func (s *Server) FormWith(path string, headers []string, pairs ...string) Answer {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return s.Send(http.MethodPost, path, form.Encode(),
		append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// PostJSON posts pairs of name and value as a JSON object.
func (s *Server) PostJSON(path string, pairs ...string) Answer {
	s.t.Helper()
	members := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		members[pairs[i]] = pairs[i+1]
	}
	body, err := json.Marshal(members)
	s.must(err)
	return s.Send(http.MethodPost, path, string(body), "Content-Type", "application/json")
}

// Basic returns the Authorization header of a client.
func Basic(id string, secret credential.Secret) []string {
	request := http.Request{Header: http.Header{}}
	request.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret.Reveal()))
	return []string{"Authorization", request.Header.Get("Authorization")}
}

// Bearer returns the Authorization header of a bearer token.
func Bearer(token credential.Secret) []string {
	return []string{"Authorization", "Bearer " + token.Reveal()}
}

// failuresNow is the clock of the failures' limiter.
func (s *Server) failuresNow() time.Time {
	if stopped := s.FailuresAt.Load(); stopped != nil {
		return *stopped
	}
	return time.Now()
}

// A ClientWithSecret is a client with its secret, which is "" for a connector.
type ClientWithSecret struct {
	client.Client
	Secret credential.Secret
}

// Service registers a client of kind service.
func (s *Server) Service() ClientWithSecret {
	s.t.Helper()
	secret, err := credential.ClientSecret.New(rand.Reader)
	s.must(err)
	c := ClientWithSecret{client.Client{ID: uuid.New(), Kind: client.Service}, secret}
	s.Fixture.Exec(`insert into account.oauth_clients
		(id, kind, name, redirect_uris, required_permissions, token_endpoint_auth_method)
		values ($1, 'service', 'Reporting', '{}', '{}', 'client_secret_basic')`, c.ID)
	s.Fixture.Exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, c.ID,
		credential.Hash(secret.Reveal()))
	return c
}

// Verifier is the verifier of Consent's challenge.
const Verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

// Consent stores the grant of a user's consent and returns it with its code.
func (s *Server) Consent(c client.Client, user uuid.UUID) (grant.Grant, credential.Secret) {
	s.t.Helper()
	terms := termsOf(c)
	g := grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      user,
		WorkspaceID: c.WorkspaceID,
		Permissions: c.Required,
		Resource:    terms.Resource,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}
	for end := time.Now().Add(await.Long); ; {
		code, err := s.Grants.Open(s.t.Context(), g, terms)
		if errors.Is(err, store.ErrUnavailable) && time.Now().Before(end) {
			g.ID = uuid.New()
			continue
		}
		s.must(err)
		return g, code
	}
}

func termsOf(c client.Client) grant.CodeTerms {
	terms := grant.CodeTerms{ClientID: c.ID, RedirectURI: fixture.Callback, Resource: REST}
	if c.Kind == client.Connector {
		terms.Resource, terms.Challenge = c.Resource, grant.ChallengeOf(Verifier)
	}
	return terms
}

// Redeem redeems a code as the token endpoint does, without a request.
func (s *Server) Redeem(code credential.Secret, terms grant.CodeTerms) (grant.Issued, error) {
	ctx := s.t.Context()
	token, err := s.Grants.Tokens.Read(grant.Code, code.Reveal())
	if err != nil {
		return grant.Issued{}, err
	}
	snapshot, err := s.Grants.Snapshot(ctx, terms.ClientID, token.Key(), nil)
	if err != nil {
		return grant.Issued{}, err
	}
	noKey := func(context.Context, []string) error { return nil }
	return s.Grants.Exchange(ctx, snapshot, grant.Request{Token: token, Terms: terms, LoadKey: noKey})
}

// Redeemed consents and redeems the code, and returns the active grant.
func (s *Server) Redeemed(c client.Client, user uuid.UUID) grant.Grant {
	s.t.Helper()
	_, code := s.Consent(c, user)
	issued, err := s.Redeem(code, termsOf(c))
	s.must(err)
	return issued.Grant
}

// LimitConnectors sets the connector policy of the fixture's workspace.
func (s *Server) LimitConnectors(p workspace.ConnectorPolicy) {
	s.t.Helper()
	_, err := s.Store.ReplaceConnectorPolicy(s.t.Context(), s.Fixture.WorkspaceID, "", p, audit.Event{
		Actor: "admin", Action: audit.ConnectorPolicyChanged, Authorization: &audit.Authorization{Operator: true},
	})
	s.must(err)
}

// arranged sends a request again while the response is a 503. If a store exceeds the server's time limits while a test
// is set up, the machine is busy.
func arranged(send func() Answer) Answer {
	for end := time.Now().Add(await.Long); ; {
		if answer := send(); answer.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return answer
		}
	}
}

// Connection is a grant with the tokens that the client holds.
type Connection struct {
	Grant   grant.Grant
	Access  credential.Secret
	Refresh credential.Secret // only for connectors
}

// Connected consents and exchanges the code of a connector.
func (s *Server) Connected(c client.Client, user uuid.UUID) Connection {
	s.t.Helper()
	g, code := s.Consent(c, user)
	return s.held(g, arranged(func() Answer {
		return s.Form(TokenPath, "grant_type", "authorization_code", "client_id", c.ID.String(), "resource", c.Resource,
			"code", code.Reveal(), "code_verifier", Verifier, "redirect_uri", fixture.Callback)
	}))
}

// Linked consents and exchanges the code of a confidential client that sends the spec's JSON.
func (s *Server) Linked(c client.Client, secret credential.Secret, user uuid.UUID) Connection {
	s.t.Helper()
	g, code := s.Consent(c, user)
	return s.held(g, arranged(func() Answer {
		return s.PostJSON(TokenPath, "client_id", c.ID.String(), "client_secret", secret.Reveal(), "code",
			code.Reveal(), "redirect_uri", fixture.Callback)
	}))
}

// Refresh exchanges the refresh token of a connector.
func (s *Server) Refresh(c client.Client, refresh credential.Secret) Answer {
	s.t.Helper()
	return s.Form(TokenPath, "grant_type", "refresh_token", "client_id", c.ID.String(), "resource", c.Resource,
		"refresh_token", refresh.Reveal())
}

// Refreshed is Refresh that must succeed.
func (s *Server) Refreshed(c client.Client, held Connection) Connection {
	s.t.Helper()
	return s.held(held.Grant, s.Refresh(c, held.Refresh))
}

func (s *Server) held(g grant.Grant, answer Answer) Connection {
	s.t.Helper()
	if answer.Status != 200 {
		s.t.Fatalf("no tokens: %d %s", answer.Status, answer.Body)
	}
	access, refresh := answer.Text("access_token"), answer.Text("refresh_token")
	return Connection{g, credential.Secret(access), credential.Secret(refresh)}
}

// Stored returns the grant in Postgres.
func (s *Server) Stored(g grant.Grant) grant.Grant {
	s.t.Helper()
	found, err := s.Store.Grant(s.t.Context(), g.Key())
	s.must(err)
	return found
}
