// Package apitest serves authserver to tests, built by app.New, on a real listener with a real Postgres and a real
// Redis, and sends it requests as clients do. The tests of a process share one service (Shared); those that disturb
// others have their own (Own). Package browsertest opens its pages.
package apitest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
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

// A Server is what a test sees of a service: a workspace, and a folder on the platform's website.
type Server struct {
	*service
	t       testing.TB
	Fixture *fixture.Fixture
	Redis   *localstore.Redis     // nil if other tests use the service at the same time
	Clients *testkit.MetadataHost // serves metadata documents of clients
	address string                // from which requests to a shared service seem to come
	sent    sync.Map              // request id → request, for failures
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

	shift   atomic.Int64 // of the clock, in nanoseconds
	watched *watchedLog
}

// A Change changes the configuration of a Server, which will be served at url.
type Change func(c *app.Config, url string)

var running = testkit.Once(func(t testing.TB) *Server { return Own(t, behindProxy) })

func behindProxy(c *app.Config, _ string) { c.TrustedProxies = "127.0.0.1,::1" }

// Shared returns a new workspace of the service that the tests of this process share. Other tests use the service at
// the same time. The test's requests come from an address of its own.
func Shared(t testing.TB) *Server { t.Helper(); return running(t).For(t) }

// Envs returns two functions that run a test in parallel, with what of builds: on a workspace of the service that the
// tests of this process share, and on one of a service of this test alone.
func Envs[E any](of func(*testing.T, *Server) E) (func(*testing.T) E, func(*testing.T, ...Change) E) {
	return func(t *testing.T) E {
			t.Parallel()
			return of(t, Shared(t))
		}, func(t *testing.T, changes ...Change) E {
			t.Parallel()
			return of(t, Own(t, changes...))
		}
}

// InTurn returns a function that builds on a service which tests have one after another, before the parallel ones. They
// may move its clock, cut its database, lock tables and stop Redis: after each, the clock and Redis are set right.
func InTurn[E any](of func(*testing.T, *Server) E, changes ...Change) func(*testing.T) E {
	build := testkit.Once(func(t testing.TB) *Server { return Own(t, append(changes, behindProxy)...) })
	return func(t *testing.T) E {
		t.Helper()
		all := build(t)
		s := all.For(t)
		s.Redis = all.Redis
		t.Cleanup(func() {
			s.shift.Store(0)
			s.FailuresAt.Store(nil)
			s.Redis.Resume()
			ctx := context.WithoutCancel(t.Context())
			if s.Parts.Redis.Ping(ctx).Err() != nil {
				s.Must(s.Redis.Restart(ctx))
			}
		})
		return of(t, s)
	}
}

// For returns a new workspace of the same service for another test.
func (s *Server) For(t testing.TB) *Server {
	t.Helper()
	other := &Server{service: s.service, t: t, Fixture: s.Fixture.For(t), Clients: s.Clients.For(t)}
	other.address = NewAddress()
	t.Cleanup(other.lookForSecrets)
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
	s.Must(s.Keyring.Load(t.Context()))
	return s
}

// New returns a Server of this test alone with empty stores, which Serve serves.
func New(t testing.TB) *Server {
	t.Helper()
	log := &testkit.Log{}
	s := &Server{
		service: &service{Log: log, Uses: &Uses{}, watched: &watchedLog{Log: log}},
		t:       t,
		Fixture: fixture.New(t),
		Redis:   testkit.NewRedis(t),
		Clients: testkit.NewMetadataHost(t),
	}
	t.Cleanup(s.lookForSecrets)
	return s
}

// mustOwn fails a test that would disturb others.
func (s *Server) mustOwn() {
	s.t.Helper()
	if s.Redis == nil {
		s.t.Fatal("other tests use this service: start it with Own or InTurn")
	}
}

// Must fails the test if there is an error.
func (s *Server) Must(err error) {
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
	log := slog.New(slog.NewTextHandler(s.watched, nil))
	built, err := app.New(s.t.Context(), s.Config, log, func(o *app.Options) {
		o.FailuresClock = func() time.Time { return *cmp.Or(s.FailuresAt.Load(), new(time.Now())) }
		o.Now, o.LastUse, o.Cost = s.Now, s.Uses, session.LowestCost()
	})
	s.Must(err)
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

// CutPostgres disconnects every client from the database until the returned function is called or the test ends.
func (s *Server) CutPostgres() (restore func()) {
	s.t.Helper()
	s.mustOwn()
	restoreDatabase := s.Fixture.Database.Cut(s.t)
	restore = sync.OnceFunc(func() { restoreDatabase(); s.Fixture.Owner.Reset() })
	s.t.Cleanup(restore)
	return restore
}

// Impatient is a Change for tests in which requests wait for a lock until they are refused.
func Impatient(c *app.Config, _ string) { c.StoreWait = testkit.SilentStoreWait }

// Lock runs a statement that locks what requests need, until the returned function is called or the test ends.
func (s *Server) Lock(statement string, args ...any) (release func()) {
	s.t.Helper()
	s.mustOwn()
	transaction, err := s.Fixture.Owner.Begin(s.t.Context())
	s.Must(err)
	release = sync.OnceFunc(func() { _ = transaction.Rollback(context.WithoutCancel(s.t.Context())) })
	s.t.Cleanup(release)
	_, err = transaction.Exec(s.t.Context(), statement, args...)
	s.Must(err)
	return release
}

// Count runs a query for one number as the owner.
func (s *Server) Count(query string, args ...any) int {
	s.t.Helper()
	var n int
	s.Must(s.Fixture.Owner.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

// Uses counts the uses of credentials, by workspace.
type Uses struct{ seen sync.Map }

func (u *Uses) of(workspaceID uuid.UUID) *atomic.Int32 {
	counted, _ := u.seen.LoadOrStore(workspaceID, new(atomic.Int32))
	return counted.(*atomic.Int32)
}

// Record implements the interface of the endpoints.
func (u *Uses) Record(of standing.Standing, _ netip.Addr) { u.of(of.CredentialWorkspace).Add(1) }

// Seen returns how many uses of a workspace's credentials were recorded.
func (u *Uses) Seen(workspaceID uuid.UUID) int { return int(u.of(workspaceID).Load()) }
