// Package browsertest serves the pages of authserver to tests, on a real listener with a real Postgres and a real Redis
// (Server), and opens them in a simple browser (Browser). The browser fills in forms and stores cookies but runs no
// scripts: what it can do works without JavaScript.
package browsertest

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/authorize"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/login"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientassertion"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/authserver/internal/testing/metadatatest"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Issuer is the base URL of the API.
const Issuer = "https://api.example.org"

// Resource is the REST API's resource identifier.
const Resource = Issuer + "/v1"

// Password is the password of every user that a Server creates.
const Password = "correct horse battery staple"

// A Server is the pages over real stores.
type Server struct {
	Passwords *session.Passwords // checks passwords, for tests that make it busy
	t         testing.TB
	Fixture   *fixture.Fixture
	Redis     *localstore.Redis
	Store     *postgres.Store
	Grants    *grant.Service
	Tickets   *consent.Tickets
	URL       string
	Log       *testkit.Log
	Clients   *metadatatest.Host // serves metadata documents of clients
	server    *httptest.Server
	hash      credential.Secret

	mu    sync.Mutex
	shift time.Duration
}

// Start serves a Server for the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		t:       t,
		Fixture: fixture.New(t),
		Redis:   testkit.NewRedis(t),
		Log:     &testkit.Log{},
		Clients: metadatatest.Start(t),
	}
	hash, err := session.HashPassword(Password, session.LowestCost())
	s.must(err)
	s.hash = hash
	s.server = httptest.NewServer(s.handler())
	s.URL = s.server.URL
	t.Cleanup(s.server.Close)
	return s
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
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

func (s *Server) handler() http.Handler {
	log := slog.New(slog.NewTextHandler(s.Log, nil))
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	keys := seal.Keys{key}
	var err error
	s.Store, err = postgres.Open(s.t.Context(), credential.Secret(s.Fixture.Database.Authserver))
	s.must(err)
	s.t.Cleanup(s.Store.Close)
	rdb, err := redis.Connect(credential.Secret(s.Redis.URL))
	s.must(err)
	s.t.Cleanup(func() { _ = rdb.Close() })
	codec, err := grant.NewTokenCodec(keys)
	s.must(err)
	s.Grants = grant.NewService(s.Store, redis.NewGrants(rdb), codec, log)
	s.Tickets, err = consent.NewTickets(keys)
	s.must(err)
	pages, err := ui.New(log)
	s.must(err)
	passwords, err := session.NewPasswords(session.LowestCost())
	s.must(err)
	s.Passwords = passwords
	devices, err := session.NewDevices(keys, false, s.Now)
	s.must(err)
	sessions := session.New(
		session.Deps{Rows: s.Store.Sessions(), SignIns: s.Store, Log: log, Unavailable: pages.Unavailable},
	)
	attempts := session.NewAttempts(redis.NewLoginCounters(rdb), log, s.Now)
	oauth := engine.New(engine.Deps{
		Issuer:       Issuer,
		RESTResource: Resource,
		Resources:    []string{Resource, Issuer + "/mcp"},
		Clients:      s.Store,
		Unknown:      postgres.ErrNoClient,
		Grants:       s.Grants,
		Documents: clientmetadata.New(clientmetadata.Deps{
			Domains:   s.Clients.Domains(),
			Trusted:   s.Clients.Roots(),
			CheckKeys: clientassertion.CheckKeys,
			Cache:     s.Store,
			Now:       s.Now,
			Log:       log,
		}),
	})
	consents := authorize.New(authorize.Deps{
		Requests: oauth,
		Grants:   s.Grants,
		Members:  s.Store,
		Visitors: sessions,
		Attempts: connectionlog.NewRecorder(s.Store, s.Now, log),
		Tickets:  s.Tickets,
		Pages:    pages,
		Issuer:   Issuer,
		Log:      log,
		Now:      s.Now,
	})
	signIn := login.New(login.Deps{
		Users:       s.Store,
		Passwords:   passwords,
		Devices:     devices,
		Attempts:    attempts,
		Sessions:    sessions,
		Auditor:     s.Store,
		Pages:       pages,
		Proxies:     testProxies(s),
		Application: consents.ApplicationAt,
		Log:         log,
	})
	pagesOfSettings, err := settings.New(settings.Deps{
		Store:     s.Store,
		Unknown:   postgres.ErrNoClient,
		Grants:    s.Grants,
		Sessions:  sessions,
		Passwords: passwords,
		Attempts:  attempts,
		Pages:     pages,
		Proxies:   testProxies(s),
		Keys:      keys,
		BaseURL:   Issuer,
		Resources: []string{Resource, Issuer + "/mcp"},
		Now:       s.Now,
		Log:       log,
	})
	s.must(err)
	mux := http.NewServeMux()
	mountSettings(mux, pagesOfSettings)
	mux.HandleFunc("GET /login", signIn.Page)
	mux.Handle("POST /login", signIn.SignIn())
	mux.Handle("POST /logout", signIn.SignOut())
	mux.HandleFunc("GET /oauth/authorize", consents.Page)
	mux.Handle("POST /oauth/authorize", consents.Answer())
	mux.Handle("POST /oauth/authorize/workspace", consents.Choose())
	mux.Handle("GET /static/", pages.Static())
	mux.HandleFunc("/", pages.NotFound)
	return web.Observe(sessions.Load(mux), log, http.HandlerFunc(pages.Internal))
}

func mountSettings(mux *http.ServeMux, h *settings.Handler) {
	mux.HandleFunc("GET /settings", h.Home)
	for pattern, handler := range map[string]http.Handler{
		"GET /settings/user":                       h.User(),
		"GET /settings/developers":                 h.Developers(),
		"POST /settings/developers/tokens":         h.MakeToken(),
		"POST /settings/developers/tokens/replace": h.ReplaceToken(),
		"POST /settings/developers/tokens/revoke":  h.RevokeToken(),
		"POST /settings/developers/apps":           h.RegisterApp(),
		"POST /settings/developers/apps/secret":    h.ReplaceSecret(),
		"POST /settings/developers/apps/delete":    h.DeleteApp(),
		"GET /settings/apps":                       h.Apps(),
		"POST /settings/apps/disconnect":           h.Disconnect(),
		"GET /settings/security":                   h.Security(),
		"POST /settings/security/sign-out":         h.SignOut(),
		"POST /settings/security/sign-out-others":  h.SignOutOthers(),
		"POST /settings/security/tokens/revoke":    h.RevokeAnyToken(),
		"GET /settings/audit":                      h.Audit(),
		"GET /settings/audit.jsonl":                h.Export(),
		"GET /settings/connectors":                 h.Connectors(),
		"POST /settings/connectors/policy":         h.SetConnectorPolicy(),
	} {
		mux.Handle(pattern, handler)
	}
}

// testProxies trusts the loopback address, so that a test can send requests from any address.
func testProxies(s *Server) web.Proxies {
	proxies, err := web.ParseProxies("127.0.0.1,::1")
	s.must(err)
	return proxies
}

// A Person is a user of the server.
type Person struct {
	ID    uuid.UUID
	Email string
}

// Stranger creates a user who can sign in and is a member of no workspace.
func (s *Server) Stranger() Person {
	s.t.Helper()
	email := "person-" + uuid.NewString()[:8] + "@example.org"
	id := s.Fixture.User(email)
	s.Fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, s.hash.Reveal())
	return Person{id, email}
}

// Member creates a user who can sign in and holds permissions in the fixture's workspace.
func (s *Server) Member(permissions ...perm.Permission) Person {
	s.t.Helper()
	person := s.Stranger()
	s.Fixture.Join(s.Fixture.WorkspaceID, person.ID, permissions...)
	return person
}

// Count runs a query for one number as the owner.
func (s *Server) Count(query string, args ...any) int {
	s.t.Helper()
	var n int
	s.must(s.Fixture.Owner.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}
