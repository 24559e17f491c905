// Package apitest serves authserver to tests, built by app.New, on a real listener with a real Postgres and a real
// Redis (Server), and sends it requests as clients do. Package browsertest opens its pages.
package apitest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

// A Server is authserver over real stores, built by app.New.
type Server struct {
	app.Parts
	t       testing.TB
	Fixture *fixture.Fixture
	Redis   *localstore.Redis
	URL     string
	Log     *testkit.Log
	Clients *testkit.MetadataHost // serves metadata documents of clients
	Uses    *Uses
	Keys    credential.Secret // in the format of ALMONER_KEYS

	PostgresTrips, RedisTrips *testkit.Trips // of a server started by StartCounted

	config app.Config

	mu            sync.Mutex
	shift         time.Duration
	failuresClock time.Time // zero while it runs (FailElsewhere)
}

// A Change changes the configuration of a Server, which will be served at url.
type Change func(c *app.Config, url string)

// Start serves a Server for the test.
func Start(t testing.TB, changes ...Change) *Server {
	t.Helper()
	s := newSite(t)
	s.serve(changes...)
	s.must(s.Keyring.Load(t.Context()))
	return s
}

// StartWithoutKeys is Start with signing keys that cannot be read until RestoreKeys.
func StartWithoutKeys(t testing.TB) *Server {
	t.Helper()
	s := newSite(t)
	s.Fixture.Exec(`alter table account.signing_keys rename to signing_keys_hidden`)
	s.serve()
	return s
}

// RestoreKeys makes the signing keys readable after StartWithoutKeys.
func (s *Server) RestoreKeys() {
	s.t.Helper()
	s.Fixture.Exec(`alter table account.signing_keys_hidden rename to signing_keys`)
}

// StartCounted is Start with a counter of round trips for each store.
func StartCounted(t testing.TB) *Server {
	t.Helper()
	s := newSite(t)
	s.Fixture.Database.Authserver, s.PostgresTrips = testkit.CountTrips(t, s.Fixture.Database.Authserver)
	s.Redis.URL, s.RedisTrips = testkit.CountTrips(t, s.Redis.URL)
	s.serve()
	s.must(s.Keyring.Load(t.Context()))
	return s
}

func newSite(t testing.TB) *Server {
	t.Helper()
	return &Server{
		t:       t,
		Fixture: fixture.New(t),
		Redis:   testkit.NewRedis(t),
		Log:     &testkit.Log{},
		Uses:    &Uses{},
		Clients: testkit.NewMetadataHost(t),
	}
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// serve builds the service and serves it until the test ends.
func (s *Server) serve(changes ...Change) {
	s.t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	s.Keys = credential.Secret(base64.RawURLEncoding.EncodeToString(key))
	server := httptest.NewUnstartedServer(nil)
	s.URL = "http://" + server.Listener.Addr().String()
	s.config = app.Config{
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
		change(&s.config, s.URL)
	}
	log := slog.New(slog.NewTextHandler(s.Log, nil))
	built, err := app.New(s.t.Context(), s.config, log, func(o *app.Options) {
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
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.shift)
}

// Wait moves the clock of the server under test. The clocks of the stores do not change.
func (s *Server) Wait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shift += d
}

// CutPostgres disconnects every client from the database until the returned function is called.
func (s *Server) CutPostgres() (restore func()) {
	s.t.Helper()
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

// Uses records which credentials were used.
type Uses struct {
	mu   sync.Mutex
	seen []standing.Standing
}

// Record implements the interface of the endpoints.
func (u *Uses) Record(s standing.Standing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, s)
}

// Seen returns how many uses were recorded.
func (u *Uses) Seen() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

// An Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// JSON returns the body as an object, or nil if it is not one.
func (a Answer) JSON() map[string]any {
	var out map[string]any
	if json.Unmarshal([]byte(a.Body), &out) != nil {
		return nil
	}
	return out
}

// Text returns a string member of the body, or "".
func (a Answer) Text(name string) string {
	text, _ := a.JSON()[name].(string)
	return text
}

// Send sends a request to a path of the server and does not follow redirects. headers are pairs of name and value.
func (s *Server) Send(method, path, body string, headers ...string) Answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	s.must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
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

// Trips are the round trips of one request.
type Trips struct{ Postgres, Redis int }

// FailElsewhere calls count until another process of authserver reaches the limit, and half as often on this server.
// Both report to the shared count, so this server refuses further failures. It stops the clock of this server's
// limiter, so that the limit stays exceeded.
func (s *Server) FailElsewhere(count func(c *ratelimit.Limiter) time.Duration) {
	s.t.Helper()
	now := s.stopFailuresClock()
	stopped := func(o *app.Options) { o.FailuresClock = func() time.Time { return now } }
	elsewhere, err := app.New(s.t.Context(), s.config, slog.New(slog.DiscardHandler), stopped)
	s.must(err)
	defer elsewhere.Close()
	reached := 0
	for count(elsewhere.Failures) == 0 {
		reached++
	}
	s.must(elsewhere.Failures.Report(s.t.Context()))
	// The shared count recovers continuously. It takes half a minute to recover by half of the limit.
	for range reached / 2 {
		if wait := count(s.Failures); wait > 0 {
			s.t.Fatalf("limited before another process failed: %s", wait)
		}
	}
	s.must(s.Failures.Report(s.t.Context()))
}

func (s *Server) stopFailuresClock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failuresClock.IsZero() {
		s.failuresClock = time.Now()
	}
	return s.failuresClock
}

// failuresNow is the clock of the failures' limiter.
func (s *Server) failuresNow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failuresClock.IsZero() {
		return s.failuresClock
	}
	return time.Now()
}
