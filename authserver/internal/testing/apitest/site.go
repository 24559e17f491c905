// Package apitest serves the account API of authserver to tests, on a real listener with a real Postgres and a real
// Redis (Server), and sends it requests as clients do (client.go, grants.go).
package apitest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/introspect"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/oauthclients"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/revoke"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientassertion"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/authserver/internal/testing/metadatatest"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/inflight"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"
)

// The base URL and the resources of the deployment.
const (
	Issuer = "https://api.example.org"
	REST   = Issuer + "/v1"
	MCP    = Issuer + "/mcp"
)

// Paths of the endpoints.
const (
	TokenPath      = "/v1/account/oauth/token"
	RevokePath     = "/v1/account/oauth/revoke"
	IntrospectPath = "/v1/account/oauth/introspect"
)

// A Server is the account API over real stores.
type Server struct {
	t        testing.TB
	Fixture  *fixture.Fixture
	Redis    *localstore.Redis
	Store    *postgres.Store
	Keyring  *keyring.Keyring
	Grants   *grant.Service
	Engine   *engine.Engine
	URL      string
	Log      *testkit.Log
	Clients  *metadatatest.Host // serves metadata documents of clients
	Resolver *clientmetadata.Resolver
	Uses     *Uses
	Keys     credential.Secret // in the format of ALMONER_KEYS

	PostgresTrips, RedisTrips *testkit.Trips // of a server started by StartCounted

	once     *redis.ReplayCache
	rates    *redis.RateLimits
	failures *ratelimit.Limiter

	mu            sync.Mutex
	shift         time.Duration
	failuresClock time.Time // zero while it runs (FailElsewhere)
}

// Start serves a Server for the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := StartUnready(t)
	s.must(s.Keyring.Load(t.Context()))
	return s
}

// StartUnready is Start without reading the signing keys.
func StartUnready(t testing.TB) *Server {
	t.Helper()
	s := newSite(t)
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// StartCounted is Start with a counter of round trips for each store.
func StartCounted(t testing.TB) *Server {
	t.Helper()
	s := newSite(t)
	s.Fixture.Database.Authserver, s.PostgresTrips = testkit.CountTrips(t, s.Fixture.Database.Authserver)
	s.Redis.URL, s.RedisTrips = testkit.CountTrips(t, s.Redis.URL)
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	s.URL = server.URL
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

func (s *Server) handler() http.Handler {
	log := slog.New(slog.NewTextHandler(s.Log, nil))
	s.open(log)
	resources := []string{REST, MCP}
	s.Engine = engine.New(engine.Deps{
		Issuer:       Issuer,
		RESTResource: REST,
		Resources:    resources,
		Clients:      s.Store,
		Unknown:      postgres.ErrNoClient,
		Grants:       s.Grants,
		Signer:       s.Keyring,
		Documents:    s.Resolver,
		Assertions: &clientassertion.Verifier{
			Documents: s.Resolver,
			Replays:   s.once,
			Audiences: []string{Issuer, Issuer + TokenPath},
			Now:       s.Now,
		},
	})
	clients := oauthclients.New(oauthclients.Deps{
		Authorizer: authorizer.Deps{
			Issuer:    Issuer,
			Resource:  REST,
			Keys:      s.Keyring.Public,
			Standings: s.Store,
			Uses:      s.Uses,
			Bounds:    inflight.NewCredentials(0),
			Now:       s.Now,
			Log:       log,
		},
		Store:     s.Store,
		Unknown:   postgres.ErrNoClient,
		Resources: resources,
		Forget:    s.Grants.PropagateRevocation,
		Variables: variables,
		Now:       s.Now,
		Log:       log,
	})
	const workspaceClients = "/v1/account/tenants/{tenantId}/oauth-clients"
	s.failures = ratelimit.NewLimiter(s.rates, log, s.failuresNow)
	mux := http.NewServeMux()
	mux.Handle(
		"POST "+TokenPath,
		token.New(
			token.Deps{
				Engine:   engine.NewRefusalRecorder(s.Engine, s.Store, s.Now, log),
				Tokens:   s.Grants,
				Failures: s.failures,
				Log:      log,
			},
		),
	)
	mux.Handle("POST "+RevokePath, revoke.New(revoke.Deps{
		Issuer:   Issuer,
		Engine:   s.Engine,
		Grants:   s.Grants,
		Failures: s.failures,
		Keys:     s.Keyring.Public,
		Now:      s.Now,
		Log:      log,
	}))
	mux.Handle("POST "+IntrospectPath, introspect.New(introspect.Deps{
		Issuer:   Issuer,
		Resource: REST,
		Store:    s.Store,
		Unknown:  postgres.ErrNoClient,
		Keys:     s.Keyring.Public,
		Uses:     s.Uses,
		Failures: s.failures,
		Now:      s.Now,
		Log:      log,
	}))
	mux.Handle("POST "+workspaceClients, clients.Register())
	mux.Handle("GET "+workspaceClients, clients.List())
	mux.Handle("GET "+workspaceClients+"/{clientId}", clients.Read())
	mux.Handle("DELETE "+workspaceClients+"/{clientId}", clients.Delete())
	mux.Handle("POST "+workspaceClients+"/{clientId}/secret", clients.ReplaceSecret())
	return web.Observe(mux, log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierr.Write(w, apierr.Flat, apierr.Of(nil))
	}))
}

// open connects to the stores and creates what depends on them.
func (s *Server) open(log *slog.Logger) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	keys := seal.Keys{key}
	s.Keys = credential.Secret(base64.RawURLEncoding.EncodeToString(key))
	rdb, err := redis.Connect(credential.Secret(s.Redis.URL))
	s.must(err)
	s.once, s.rates = redis.NewReplayCache(rdb), redis.NewRateLimits(rdb)
	s.t.Cleanup(func() { _ = rdb.Close() })
	s.Store, err = postgres.Open(context.Background(), credential.Secret(s.Fixture.Database.Authserver))
	s.must(err)
	s.t.Cleanup(s.Store.Close)
	s.Resolver = clientmetadata.New(clientmetadata.Deps{
		Domains:   s.Clients.Domains(),
		Trusted:   s.Clients.Roots(),
		CheckKeys: clientassertion.CheckKeys,
		Cache:     s.Store,
		Now:       s.Now,
		Log:       log,
	})
	codec, err := grant.NewTokenCodec(keys)
	s.must(err)
	s.Grants = grant.NewService(s.Store, redis.NewGrants(rdb), codec, log)
	s.Keyring, err = keyring.New(s.Store, keys)
	s.must(err)
}

func variables(r *http.Request) map[string]string {
	return map[string]string{"tenantId": r.PathValue("tenantId"), "clientId": r.PathValue("clientId")}
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
