package clientmetadata

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A resolverTest is a Resolver over a real store, with a metadata host on this machine.
type resolverTest struct {
	*Resolver
	t       *testing.T
	host    *metadataHost
	fixture *fixture.Fixture
	store   *postgres.Store
	at      string // URL of a document
	log     bytes.Buffer

	mu     sync.Mutex
	shift  time.Duration
	status int
	cache  string
	body   func(address string) string
	gate   chan struct{} // if not nil, responses wait for it
	open   bool          // the gate does not apply to the document at the address
}

// claudeAt returns the document of a client at the address.
func claudeAt(address string) string {
	return `{"client_id":"` + address + `","client_name":"Claude","redirect_uris":["https://claude.ai/cb"]}`
}

func newResolverTest(t *testing.T) *resolverTest {
	t.Helper()
	t.Parallel()
	s := &resolverTest{t: t, status: 200, cache: "max-age=600", fixture: fixture.Shared(t), body: claudeAt}
	s.host = newMetadataHost(t, s.serve)
	s.at = s.host.URL + "/oauth/" + uuid.NewString() // a later server may get the same port
	database := credential.Secret(s.fixture.Database.Authserver)
	store, err := postgres.Open(context.Background(), postgres.Only(database), testkit.StoreWait)
	testkit.Must(t, err)
	t.Cleanup(store.Close)
	s.store = store
	s.Resolver = s.another()
	return s
}

// another returns the Resolver of another process.
func (s *resolverTest) another() *Resolver {
	return New(Deps{
		Domains: client.Domains{s.host.Host: "claude"},
		Trusted: s.host.Roots,
		Cache:   s.store,
		Now:     s.now,
		Log:     slog.New(slog.NewTextHandler(&s.log, nil)),
	})
}

func (s *resolverTest) serve(p *metadataHost, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	status, cache, body, gate, open := s.status, s.cache, s.body(p.URL+r.URL.Path), s.gate, s.open
	s.mu.Unlock()
	if gate != nil && !(open && p.URL+r.URL.Path == s.at) {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", cache)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func (s *resolverTest) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.shift)
}

func (s *resolverTest) wait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shift += d
}

func (s *resolverTest) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *resolverTest) wants(l *Resolver, name string, fetches int32) {
	s.t.Helper()
	c, err := l.Client(s.t.Context(), s.at)
	if err != nil || c.Name != name || c.PublicID() != s.at {
		s.t.Errorf("%+v %v", c, err)
	}
	if got := s.host.Fetches.Load(); got != fetches {
		s.t.Errorf("%d fetches, want %d", got, fetches)
	}
}

// refuses requires that the document is refused for what it says.
func (s *resolverTest) refuses(what string) {
	s.t.Helper()
	_, err := s.Client(s.t.Context(), s.at)
	if refused, _ := errors.AsType[*client.DocumentError](err); refused == nil ||
		errors.Is(err, client.ErrUnreachable) || errors.Is(err, store.ErrUnavailable) {
		s.t.Errorf("%s: %v", what, err)
	}
}

// fails requires that there is no client for the document, because of want.
func (s *resolverTest) fails(what string, want error) {
	s.t.Helper()
	if _, err := s.Client(s.t.Context(), s.at); !errors.Is(err, want) {
		s.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// publishes replaces the document. AT stands for its address.
func (s *resolverTest) publishes(document string) {
	s.set(func() {
		s.status = http.StatusOK
		s.body = func(address string) string { return strings.ReplaceAll(document, "AT", address) }
	})
}

func TestResolver_FetchesOnceForAllProcesses(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	s.wants(s.Resolver, "Claude", 1)
	s.wants(s.another(), "Claude", 1)
	s.wait(9 * time.Minute)
	s.wants(s.Resolver, "Claude", 1)
	s.publishes(strings.Replace(claudeAt("AT"), "Claude", "Claude 2", 1))
	s.wait(2 * time.Minute)
	s.wants(s.Resolver, "Claude 2", 2)
	s.wants(s.another(), "Claude 2", 2)
}

func TestResolver_UsesOldCopyWhileDocumentIsUnreachable(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	s.set(func() { s.status = http.StatusBadGateway })
	s.wait(time.Hour)
	s.wants(s.Resolver, "Claude", 2)
	s.wants(s.Resolver, "Claude", 2) // a failure is remembered
	s.wait(31 * time.Second)
	s.wants(s.Resolver, "Claude", 3)
	s.set(func() { s.status = http.StatusNotFound })
	s.wait(31 * time.Second)
	s.wants(s.Resolver, "Claude", 4)
	s.host.Close()
	s.wait(31 * time.Second)
	s.wants(s.another(), "Claude", 4)
	s.wait(client.CacheLife)
	s.fails("after the cache lifetime", client.ErrUnreachable)
}

func TestResolver_RefusesDocumentThatBecameInvalid(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	s.publishes(`{"client_id":"AT","redirect_uris":["https://claude.ai/cb"],"client_secret":"x"}`)
	s.wait(time.Hour)
	s.refuses("the first time")
	s.refuses("the second time")
	if fetches := s.host.Fetches.Load(); fetches != 2 {
		t.Errorf("%d fetches, want 2", fetches)
	}
}

func TestResolver_ReturnsFailureWithoutCopy(t *testing.T) {
	s := newResolverTest(t)
	s.set(func() { s.status = http.StatusInternalServerError })
	s.fails("status 500", client.ErrUnreachable)
	for name, body := range map[string]string{
		"not JSON":          "<html>",
		"two objects":       "{}{}",
		"another client_id": `{"client_id":"https://claude.ai/x","redirect_uris":["https://claude.ai/cb"]}`,
		"duplicate key":     `{"client_id":"AT","client_id":"AT","redirect_uris":["https://claude.ai/cb"]}`,
		"wrong case":        `{"Client_ID":"AT","redirect_uris":["https://claude.ai/cb"]}`,
		"wrong type":        `{"client_id":"AT","redirect_uris":"https://claude.ai/cb"}`,
		"secret expiry":     `{"client_id":"AT","redirect_uris":["https://claude.ai/cb"],"client_secret_expires_at":0}`,
		"null secret":       `{"client_id":"AT","redirect_uris":["https://claude.ai/cb"],"client_secret":null}`,
	} {
		s.publishes(body)
		s.wait(time.Minute)
		s.refuses(name)
	}
	if n := stored[int](s, "count(*)"); n != 0 {
		t.Errorf("%d clients were stored", n)
	}
}

// stored reads a value of the client's row.
func stored[T any](s *resolverTest, value string) (found T) {
	s.t.Helper()
	s.fixture.Read("select "+value+" from account.oauth_clients where metadata_url = '"+s.at+"'", &found)
	return found
}

func TestResolver_PlatformFollowsCurrentDomains(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	s.host.Server.Close() // no fetch is needed
	for _, platform := range []string{"", "chatgpt", "claude"} {
		l := s.another()
		l.Domains = client.Domains{s.host.Host: platform}
		c, err := l.Client(t.Context(), s.at)
		if err != nil || c.Platform != platform {
			t.Errorf("%q %v, want %q", c.Platform, err, platform)
		}
		if got := stored[string](s, "coalesce(connector_platform, '')"); got != platform {
			t.Errorf("stored platform %q, want %q", got, platform)
		}
	}
}

func TestResolver_UnstorableKeysAreDocumentError(t *testing.T) {
	s := newResolverTest(t)
	usable := strings.TrimSuffix(string(set(t, newECKey(t, ""))), "]}")
	for _, key := range []string{`{"kty":"EC","kid":"\u0000"}`, `{"kty":"EC","n":1e999999}`} {
		s.publishes(`{"client_id":"AT","redirect_uris":["https://claude.ai/cb"],` +
			`"token_endpoint_auth_method":"private_key_jwt","jwks":` + usable + `,` + key + `]}}`)
		s.wait(time.Minute)
		s.refuses(key)
	}
}

func TestResolver_CancelledCallerDoesNotAffectOthers(t *testing.T) {
	s := newResolverTest(t)
	gate := make(chan struct{})
	s.set(func() { s.gate = gate })
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := s.Client(ctx, s.at); first <- err }()
	await.True(t, "the fetch begins", func() bool { return s.host.Fetches.Load() > 0 })
	leave()
	if err := <-first; !errors.Is(err, client.ErrUnreachable) {
		t.Error(err)
	}
	close(gate)
	s.wants(s.Resolver, "Claude", 1)
}

func TestResolver_RefusesDeletedClient(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	s.fixture.Exec(`update account.oauth_clients set deleted_at = now() where metadata_url = $1`, s.at)
	s.wait(time.Hour)
	s.fails("deleted", client.ErrNotServed)
	if fetches := s.host.Fetches.Load(); fetches != 1 {
		t.Errorf("%d fetches, want 1", fetches)
	}
	copied := client.CachedClient{FetchedAt: s.now(), FreshUntil: s.now()}
	copied.Client = client.Client{Kind: client.Connector, Name: "x", Address: s.at, AuthMethod: client.AuthNone}
	copied.ID = stored[uuid.UUID](s, "id")
	if err := s.store.StoreClientCopy(t.Context(), copied); !errors.Is(err, client.ErrNotServed) {
		t.Errorf("a deleted client is stored again: %v", err)
	}
}

func TestResolver_StoreOutageIsUnavailable(t *testing.T) {
	s := newResolverTest(t)
	s.store.Close()
	s.fails("without Postgres", store.ErrUnavailable)
}
