// Package apitest serves authserver to tests, built by app.New, on a real listener with a real Postgres and a real
// Redis (Server), and sends it requests as clients do (client.go, grants.go). Package browsertest opens its pages.
package apitest

import (
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/authserver/internal/testing/metadatatest"
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
	Clients *metadatatest.Host // serves metadata documents of clients
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
		Clients: metadatatest.Start(t),
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
	built, err := app.New(s.t.Context(), s.config, log, app.WithClock(s.Now), app.WithFailuresClock(s.failuresNow),
		app.WithUsageRecorder(s.Uses), app.WithPasswordCost(session.LowestCost()))
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
