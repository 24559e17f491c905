package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

const base = "https://api.almoner.example"

// A service is the whole of resourceapi with its own database and a stand-in for the authorization server.
type service struct {
	*postgrestest.Fixture
	t      *testing.T
	app    *App
	server *httptest.Server
	key    signingKey
	log    *lockedBuffer
}

func newService(t *testing.T, changes ...change) *service {
	t.Helper()
	s := &service{Fixture: postgrestest.New(t), t: t, key: newKey(t, "key-1"), log: &lockedBuffer{}}
	s.start(s.Database.Resourceapi, newAuthserver(t, s.key).URL, changes...)
	return s
}

// A change changes the limits with which a service runs, for tests about them: all other tests have generous ones.
type change func(*Config)

// waitsFor makes a service wait for its stores so long.
func waitsFor(wait time.Duration) change { return func(c *Config) { c.StoreWait = wait } }

// searchesAsDescribed gives searches the contract's time limit.
func searchesAsDescribed(c *Config) { c.searchTime = 0 }

// start runs the service with a database and a JWKS.
func (s *service) start(database, jwks string, changes ...change) {
	s.t.Helper()
	s.app = newApp(s.t, database, jwks, slog.New(slog.NewJSONHandler(s.log, nil)), changes...)
	s.server = httptest.NewServer(s.app.Handler)
	s.t.Cleanup(s.server.Close)
}

func newApp(t testing.TB, database, jwks string, log *slog.Logger, changes ...change) *App {
	t.Helper()
	config := configFor(database, jwks)
	for _, change := range changes {
		change(&config)
	}
	app, err := New(context.Background(), config, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(app.Close)
	return app
}

func configFor(database, jwks string) Config {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return Config{
		Listen:      "127.0.0.1:0",
		BaseURL:     base,
		AppURL:      "https://app.almoner.example",
		MCPOrigins:  "https://claude.ai,https://claude.com,https://chatgpt.com,https://vscode.dev,loopback",
		DatabaseURL: credential.Secret(database),
		Connections: 4,
		StoreWait:   testkit.StoreWait,
		searchTime:  testkit.StoreWait / 2,
		JWKSURL:     jwks,
		Keys:        credential.Secret(base64.RawURLEncoding.EncodeToString(key)),
	}
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

// reader creates a workspace, a member who may read its programmes, and the member's personal access token.
func (s *service) reader() (workspaceID uuid.UUID, token string) {
	s.t.Helper()
	workspaceID, user := s.member(perm.ProgrammesRead)
	return workspaceID, s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
}

// An answer is a response.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// code returns error.code of the nested shape.
func (a answer) code(t *testing.T) string {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil || body.Error.Message == "" {
		t.Fatalf("%d does not have the nested shape: %s", a.Status, a.Body)
	}
	return body.Error.Code
}

func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		t.Fatalf("%d %s: %v", a.Status, a.Body, err)
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
	request, err := http.NewRequest(method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header = h
	response, err := http.DefaultTransport.RoundTrip(request) // follows no redirect
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(content)}
}

func (s *service) get(path string, h header) answer { s.t.Helper(); return s.do("GET", path, h, "") }

const listPath = "/v1/programmes/programmes"

// A lockedBuffer is a log that a test can read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// A run is the service listening on its own port, like the program.
type run struct {
	stop  context.CancelFunc
	ended chan error
}

// run serves further requests through App.Run.
func (s *service) run() run {
	s.t.Helper()
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
