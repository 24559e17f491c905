package app

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

const base = "https://api.almoner.example"

// A service is what a test sees of resourceapi: an organisation of its own, in the database and the process that the
// tests of this package share (newService, newWorker), or in its own ones (ownService).
type service struct {
	*postgrestest.Fixture
	*running
	t          testing.TB
	workspaces []string
	shared     bool
}

// running is the whole of resourceapi with a stand-in for the authorization server.
type running struct {
	app    *App
	server *httptest.Server
	config Config
	key    signingKey
	tokens *engage.Tokens // sealed with the service's own key
	log    *testkit.Log
}

var (
	sharedService = testkit.Once(func(t testing.TB) *service { return ownService(t) })
	sharedWorker  = testkit.Once(func(t testing.TB) *service {
		s := ownService(t, trustsReceivers)
		s.run()
		return s
	})
	sharedRedis = testkit.Once(func(t testing.TB) *localstore.Redis { return testkit.NewRedis(t) })
)

// newService makes the test a parallel one with an organisation of the shared service. It only serves: nothing is
// processed in the background.
func newService(t *testing.T) *service {
	t.Helper()
	t.Parallel()
	return sharedService(t).forTest(t)
}

// newOwn makes the test a parallel one with an ownService.
func newOwn(t *testing.T, changes ...change) *service {
	t.Helper()
	t.Parallel()
	return ownService(t, changes...)
}

// newWorker is newService for the shared service that processes submissions, imports, erasures and webhooks.
func newWorker(t *testing.T) *service {
	t.Helper()
	t.Parallel()
	return sharedWorker(t).forTest(t)
}

func (s *service) forTest(t testing.TB) *service {
	t.Helper()
	return &service{Fixture: s.Fixture.For(t), running: s.running, t: t, shared: true}
}

// ownService serves a test that stops a store, locks a table, looks at all of a table or of the log, or needs other
// settings.
func ownService(t testing.TB, changes ...change) *service {
	t.Helper()
	s := &service{
		Fixture: postgrestest.New(t),
		running: &running{key: newKey(t, postgrestest.KeyID), log: &testkit.Log{}},
		t:       t,
	}
	s.config = configFor(s.Database.Resourceapi, "")
	s.config.RedisURL = credential.Secret(sharedRedis(t).URL)
	s.server = httptest.NewUnstartedServer(nil)
	for _, change := range changes {
		change(&s.config)
	}
	if s.config.JWKSURL == "" {
		s.config.JWKSURL = newAuthserver(t, s.key).URL
	}
	var err error
	s.tokens, err = engage.NewTokens(seal.NewKeys([]byte(masterKey)))
	if err != nil {
		t.Fatal(err)
	}
	s.app = s.build()
	s.server.Config.Handler = s.app.Handler
	s.server.Start()
	t.Cleanup(s.server.Close)
	return s
}

// build makes another App with the changed configuration of the service.
func (s *service) build(changes ...change) *App {
	s.t.Helper()
	config := s.config
	for _, change := range changes {
		change(&config)
	}
	app := orFail(New(context.Background(), config, web.NewLogger(s.log, slog.LevelInfo)))(s.t)
	s.t.Cleanup(app.Close)
	return app
}

// unconnected returns an App that cannot reach its stores.
func unconnected(t testing.TB) *App {
	t.Helper()
	const nowhere = "127.0.0.1:1"
	app := orFail(New(t.Context(), configFor("postgres://nobody@"+nowhere+"/none", "http://"+nowhere),
		slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(app.Close)
	return app
}

// serve replaces the App that serves.
func (s *service) serve(app *App) { s.mustOwn(); s.app, s.server.Config.Handler = app, app.Handler }

// mustOwn fails a test that would disturb others.
func (s *service) mustOwn() {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("other tests use this service: start it with ownService")
	}
}

// A change changes the configuration of a service for one test.
type change func(*Config)

// waitsFor makes a service wait for its stores so long.
func waitsFor(wait time.Duration) change { return func(c *Config) { c.StoreWait = wait } }

// searchesAsDescribed gives searches the contract's time limit.
func searchesAsDescribed(c *Config) { c.searchTime, c.Connections = 0, 4 }

// masterKey is the key of every service.
const masterKey = "0123456789abcdef0123456789abcdef"

func configFor(database, jwks string) Config {
	return Config{
		Listen:      "127.0.0.1:0",
		BaseURL:     base,
		AppURL:      "https://app.almoner.example",
		MCPOrigins:  "https://claude.ai,https://claude.com,https://chatgpt.com,https://vscode.dev,loopback",
		DatabaseURL: credential.Secret(database),
		Connections: 12,
		StoreWait:   testkit.StoreWait,
		searchTime:  testkit.StoreWait / 2,
		JWKSURL:     jwks,
		Worker:      true,
		Keys:        credential.Secret(base64.RawURLEncoding.EncodeToString([]byte(masterKey))),
		Proxies:     "127.0.0.1",
	}
}

// mine stands for a condition in SQL: that a row is of one of the test's workspaces.
const mine = "{mine}"

func (s *service) scoped(sql string) string {
	return strings.ReplaceAll(sql, mine, "tenant_id = any ('{"+strings.Join(s.workspaces, ",")+"}')")
}

// Workspace adds a workspace to those of the test.
func (s *service) Workspace() uuid.UUID {
	s.t.Helper()
	id := s.Fixture.Workspace()
	s.workspaces = append(s.workspaces, id.String())
	return id
}

// Exec runs a statement as the owner of the database. {mine} is true for the rows of the test's workspaces.
func (s *service) Exec(sql string, args ...any) { s.t.Helper(); s.Fixture.Exec(s.scoped(sql), args...) }

// Count returns the number that a query yields. {mine} is true for the rows of the test's workspaces.
func (s *service) Count(sql string, args ...any) int {
	s.t.Helper()
	return s.Fixture.Count(s.scoped(sql), args...)
}

// rows counts the rows of a table in the test's workspaces that meet the condition, if it is not empty.
func (s *service) rows(table, condition string, args ...any) int {
	s.t.Helper()
	if condition != "" {
		condition = " and (" + condition + ")"
	}
	return s.Count("select count(*) from "+table+" where {mine}"+condition, args...)
}

// claims returns the claims of an access token of the grant.
func claims(g postgrestest.Grant) accesstoken.Claims {
	return accesstoken.Claims{
		Issuer:      base,
		Subject:     g.User,
		Audience:    g.Resource,
		Expires:     time.Now().Add(time.Hour),
		IssuedAt:    time.Now(),
		ID:          uuid.NewString(),
		ClientID:    g.Client.String(),
		Scope:       g.Permissions,
		WorkspaceID: g.WorkspaceID,
		GrantID:     g.ID,
	}
}

func (s *service) token(c accesstoken.Claims) string { s.t.Helper(); return s.key.sign(s.t, c) }

// member creates a workspace with a member who has the permissions.
func (s *service) member(held ...perm.Permission) (workspaceID, user uuid.UUID) {
	s.t.Helper()
	workspaceID, user = s.Workspace(), s.User()
	s.Member(workspaceID, user, held...)
	return workspaceID, user
}

// holder returns the headers of a new member of a workspace with the permissions.
func (s *service) holder(workspaceID uuid.UUID, held ...perm.Permission) header {
	s.t.Helper()
	user := s.User()
	s.Member(workspaceID, user, held...)
	return s.holding(workspaceID, user, held...)
}

// newHolder creates a workspace and returns the headers of a member with the permissions.
func (s *service) newHolder(held ...perm.Permission) header {
	s.t.Helper()
	return s.holder(s.Workspace(), held...)
}

// reader creates a workspace and returns the headers of a member who may read its programmes.
func (s *service) reader() header {
	s.t.Helper()
	return s.newHolder(perm.ProgrammesRead)
}

// newReader is newService with the headers of reader, and newEditor with those of editor.
func newReader(t *testing.T) (*service, header) {
	s := newService(t)
	return s, s.reader()
}

func newEditor(t *testing.T) (*service, header) {
	s := newService(t)
	return s, s.editor()
}

// wantsRows checks the number of rows of a table in the test's workspaces that meet the condition, if there is one.
func (s *service) wantsRows(want int, table, condition string, args ...any) {
	s.t.Helper()
	if got := s.rows(table, condition, args...); got != want {
		s.t.Errorf("%d rows of %s where %q, want %d", got, table, condition, want)
	}
}

// Wants checks the number that a query yields. {mine} is true for the rows of the test's workspaces.
func (s *service) Wants(want int, sql string, args ...any) {
	s.t.Helper()
	s.Fixture.Wants(want, s.scoped(sql), args...)
}

// logHas checks that the service logged the text.
func (s *service) logHas(text string) {
	s.t.Helper()
	if log := s.log.String(); !strings.Contains(log, text) {
		s.t.Errorf("the log lacks %s: %s", text, log)
	}
}

// logLacks checks that the service logged none of the secrets, and does not repeat them.
func (s *service) logLacks(secrets ...string) {
	s.t.Helper()
	for i, secret := range secrets {
		if strings.Contains(s.log.String(), secret) {
			s.t.Errorf("secret %d is in the log", i)
		}
	}
}

type header map[string]string

func as(token string, workspaceID uuid.UUID) header {
	return header{"Authorization": "Bearer " + token, "X-Tenant-Id": workspaceID.String()}
}

func (h header) with(name, value string) header {
	out := header{name: value}
	for k, v := range h {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// workspace returns the workspace that the headers name.
func (h header) workspace() uuid.UUID { return uuid.MustParse(h["X-Tenant-Id"]) }

// token returns the bearer token of the headers.
func (h header) token() string { return strings.TrimPrefix(h["Authorization"], "Bearer ") }

func (h header) json() header { return h.with("Content-Type", "application/json") }

func (s *service) do(method, path string, h header, body string) answer {
	s.t.Helper()
	full := http.Header{}
	for name, value := range h {
		full.Set(name, value)
	}
	return s.send(method, path, full, body)
}

func (s *service) send(method, path string, h http.Header, body string) answer {
	s.t.Helper()
	request := orFail(http.NewRequest(method, s.server.URL+path, strings.NewReader(body)))(s.t)
	request.Header = h
	response := orFail(http.DefaultTransport.RoundTrip(request))(s.t) // follows no redirect
	defer func() { _ = response.Body.Close() }()
	content := orFail(io.ReadAll(response.Body))(s.t)
	return answer{
		Status: response.StatusCode,
		Header: response.Header,
		Body:   string(content),
		sent:   method + " " + path + " " + body,
		log:    s.log,
	}
}

func (s *service) get(path string, h header) answer { s.t.Helper(); return s.do("GET", path, h, "") }

const listPath = "/v1/programmes/programmes"

// A run is the service listening on its own port, like the program.
type run struct {
	stop  context.CancelFunc
	ended chan error
}

// run serves further requests through App.Run.
func (s *service) run() run {
	s.t.Helper()
	s.mustOwn()
	ctx, stop := context.WithCancel(context.Background())
	r := run{stop, make(chan error, 1)}
	address := make(chan net.Addr, 1)
	go func() {
		r.ended <- s.app.Run(ctx, func(a net.Addr) { address <- a })
		close(r.ended)
	}()
	s.t.Cleanup(func() {
		stop()
		for range r.ended { // until Run has returned
		}
	})
	s.server.URL = "http://" + (<-address).String()
	return r
}

// holding returns the headers of a personal access token of the member with the permissions.
func (s *service) holding(workspaceID, user uuid.UUID, held ...perm.Permission) header {
	s.t.Helper()
	return as(s.PAT(workspaceID, user, held...).Reveal(), workspaceID).json()
}
