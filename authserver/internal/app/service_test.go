package app_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// environ returns valid settings with one of them replaced.
func environ(name, value string) []string {
	settings := map[string]string{
		"ALMONER_BASE_URL":     "https://api.example.org",
		"ALMONER_APP_URL":      "https://app.example.org",
		"ALMONER_DATABASE_URL": "postgres://x:hush@localhost/x",
		"ALMONER_REDIS_URL":    "redis://:hush@localhost:6379",
		"ALMONER_KEYS":         "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	}
	settings[name] = value
	var out []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		out = append(out, name+"="+settings[name])
	}
	return out
}

func TestLoadConfig_ChecksEverySetting(t *testing.T) {
	t.Parallel()
	if c, _, err := app.LoadConfig(environ("ALMONER_NOTICE", "0s")); err != nil || c.Listen != "127.0.0.1:8081" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, wrong := range [][2]string{
		{"ALMONER_BASE_URL", ""},
		{"ALMONER_BASE_URL", "hush.example.org"},
		{"ALMONER_BASE_URL", "https://api.example.org/"},
		{"ALMONER_APP_URL", "https://u:hush@app.example.org"},
		{"ALMONER_DATABASE_URL", ""},
		{"ALMONER_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_REFRESH_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_REFRESH_DATABASE_URL", "postgres://hush:hush@localhost/other"},
		{"ALMONER_REDIS_URL", ""},
		{"ALMONER_REDIS_URL", "http://:hush@localhost"},
		{"ALMONER_KEYS", ""},
		{"ALMONER_KEYS", "hush"},
		{"ALMONER_KEY_MAX_AGE", "59m"},
		{"ALMONER_KEY_MAX_AGE", "hush"},
		{"ALMONER_RETENTION_AUDIT_DAYS", "89"},
		{"ALMONER_RETENTION_GRANTS_DAYS", "1"},
		{"ALMONER_RETENTION_KEYS_DAYS", "90"},
		{"ALMONER_RETENTION_TOKENS_DAYS", "-1"},
		{"ALMONER_RETENTION_CLIENTS_DAYS", "36501"},
		{"ALMONER_RETENTION_INVITATIONS_DAYS", "hush"},
		{"ALMONER_NOTICE", "11s"},
		{"ALMONER_NOTICE", "-1s"},
		{"ALMONER_STORE_WAIT", "200ms"},
		{"ALMONER_STORE_WAIT", "21s"},
		{"ALMONER_TRUSTED_PROXIES", "hush"},
		{"ALMONER_PASSKEYS", "hush"},
		{"ALMONER_LOG_LEVEL", "hush"},
		{"ALMONER_CLIENT_DOMAINS", "hush"},
		{"ALMONER_UPSTREAM_ISSUER", "http://hush"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hush"},
		{"OTEL_TRACES_SAMPLER_ARG", "2"},
		{"OTEL_TRACES_SAMPLER_ARG", "hush"},
	} {
		_, reading, err := app.LoadConfig(environ(wrong[0], wrong[1]))
		if err == nil || !strings.HasPrefix(reading.Mistakes[0], wrong[0]) || strings.Contains(err.Error(), "hush") ||
			strings.Contains(err.Error(), "\n  ALMONER_BASE") {
			t.Errorf("%s=%s: %v", wrong[0], wrong[1], err)
		}
	}
	_, reading, _ := app.LoadConfig(nil)
	if want := []string{
		"ALMONER_BASE_URL is not set", "ALMONER_APP_URL is not set", "ALMONER_DATABASE_URL is not set",
		"ALMONER_REDIS_URL is not set", "ALMONER_KEYS is not set",
	}; !slices.Equal(reading.Mistakes, want) {
		t.Errorf("%q", reading.Mistakes)
	}
}

// Check names each setting that is wrong, and no secret. A deployment with public URLs refuses the settings that trust
// certificates of this machine.
func TestCheck_ReportsMistakes(t *testing.T) {
	t.Parallel()
	certificate := testkit.NewMetadataHost(t).PEM()
	public := app.Config{
		BaseURL:              "https://api.example.org",
		AppURL:               "https://app.example.org",
		Keys:                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		Passkeys:             true,
		UpstreamIssuer:       "https://id.example.org",
		UpstreamClientID:     "almoner",
		UpstreamClientSecret: "secret",
	}
	documents := app.Config{
		BaseURL:          "http://localhost:8080",
		AppURL:           "http://127.0.0.1:8081",
		Keys:             public.Keys,
		ClientDomains:    "claude.ai=claude,localhost:8443=other",
		ClientDocumentCA: certificate,
	}
	webhooks := documents
	webhooks.ClientDomains, webhooks.ClientDocumentCA, webhooks.WebhookCA = "", "", certificate
	for _, good := range []app.Config{public, documents, webhooks} {
		if mistakes := good.Check(); len(mistakes) > 0 {
			t.Fatal(mistakes)
		}
	}
	for _, c := range []struct {
		mistake string
		good    app.Config
		spoil   change
	}{
		{"ALMONER_UPSTREAM_CLIENT_SECRET", public, func(c *app.Config) { c.UpstreamClientSecret = "" }},
		{"ALMONER_UPSTREAM_CLIENT_ID", public, func(c *app.Config) { c.UpstreamClientID = "" }},
		{"ALMONER_UPSTREAM_ISSUER", public, func(c *app.Config) { c.UpstreamIssuer = "http://id.example.org" }},
		{"ALMONER_UPSTREAM_ISSUER, ", public, func(c *app.Config) { c.UpstreamIssuer = "" }},
		{"ALMONER_CLIENT_DOMAINS", documents, func(c *app.Config) { c.ClientDomains = "claude.ai" }},
		{"ALMONER_CLIENT_DOCUMENT_CA contains", documents, func(c *app.Config) { c.ClientDocumentCA = "none" }},
		{"ALMONER_CLIENT_DOCUMENT_CA is for development", documents, publicAPI},
		{"ALMONER_CLIENT_DOCUMENT_CA is for development", documents, publicApp},
		{"ALMONER_WEBHOOK_CA contains", webhooks, func(c *app.Config) { c.WebhookCA = "none" }},
		{"ALMONER_WEBHOOK_CA is for development", webhooks, publicAPI},
		{"ALMONER_WEBHOOK_CA is for development", webhooks, publicApp},
	} {
		config := c.good
		c.spoil(&config)
		mistakes := config.Check()
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), c.mistake) ||
			strings.Contains(mistakes[0].Error(), "secret") {
			t.Errorf("got %v, want %s", mistakes, c.mistake)
		}
	}
}

func publicAPI(c *app.Config) { c.BaseURL = "https://api.example.org" }

func publicApp(c *app.Config) { c.AppURL = "https://localhost.example.org" }

// An operator must not look for the fault in the wrong store.
func TestReadiness_NamesOnlyThePartThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	testkit.Must(t, err)
	defer func() { _ = silent.Close() }()
	s := own(t, func(c *app.Config) {
		c.DatabaseURL = credential.Secret("postgres://nobody@" + silent.Addr().String() + "/nothing")
		c.StoreWait = time.Second
	})
	// keys are read from Postgres
	s.awaitReadiness(503, `{"keys":"does not answer","postgres":"does not answer","redis":"ok"}`)
	// Without keys, the server cannot tell a forged token from a valid one.
	equal(t, "a token without keys", s.sendToken(t.Context(), "a.b.c"), http.StatusServiceUnavailable)
}

// The process stays ready, without delay, while a flood of requests holds every connection to Postgres.
func TestReadiness_IsNotDelayedByFlood(t *testing.T) {
	s := own(t)
	ready := func() { s.awaitReadiness(http.StatusOK, `{"keys":"ok","postgres":"ok","redis":"ok"}`) }
	ready()
	hold, err := s.fixture.Owner.Begin(t.Context())
	s.must(err)
	defer func() { _ = hold.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = hold.Exec(t.Context(), `lock table account.personal_access_tokens in access exclusive mode`)
	s.must(err)
	flooding, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	for range 64 {
		flood.Go(func() {
			for flooding.Err() == nil {
				token, _ := credential.PersonalAccessToken.New(rand.Reader)
				s.sendToken(flooding, token.Reveal())
			}
		})
	}
	const waiting = `select count(*) from ` + testkit.Locks + `
		where relation = 'account.personal_access_tokens'::regclass and not granted`
	await.True(t, "the flood holds every connection", func() bool { return read[int](s, waiting) >= 15 })
	testkit.Quick(t, 500*time.Millisecond, ready)
}

// awaitReadiness waits for the readiness of the process. On a busy machine, a store may miss the limit of one probe.
func (s *site) awaitReadiness(status int, parts string) {
	s.t.Helper()
	await.NoError(s.t, func() error {
		if page := s.browser().Get("/readyz"); page.Status != status || page.Body != parts+"\n" {
			return fmt.Errorf("%d %s", page.Status, page.Body)
		}
		return nil
	})
}

// sendToken sends a request with a token, which needs a query to Postgres, and returns the status of the response.
func (s *site) sendToken(ctx context.Context, token string) int {
	path := "/v1/account/tenants/" + s.fixture.WorkspaceID.String() + "/oauth-clients"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// Every settings page has the same navigation, whichever package serves it.
func TestNavigation_IsTheSameOnSignInMethodPages(t *testing.T) {
	s := shared(t)
	reader, manager := s.signedIn(s.person()), s.signedIn(s.member(perm.AccountAPIAccess))
	for _, path := range []string{"/settings/user", keysPage, linkPage} {
		few, all := reader.Get(path), manager.Get(path)
		s.wants(path, few, 200)
		for _, section := range []string{"developers", "connectors", "audit"} {
			link := `<a href="/settings/` + section + "?tenant=" + s.fixture.WorkspaceID.String() + `"`
			equal(t, path+" links a user who manages nothing to "+section, strings.Contains(few.Body, link), false)
			equal(t, path+" links a manager to "+section, strings.Contains(all.Body, link), true)
		}
	}
}

func TestRoutes_FormURLLinksToItsPage(t *testing.T) {
	s := shared(t)
	b := s.signedIn(s.person())
	for path, back := range map[string]string{
		"/settings/developers/tokens":      "/settings/developers",
		"/settings/developers/apps/secret": "/settings/developers",
		"/settings/apps/disconnect":        "/settings/apps",
		"/settings/connectors/disconnect":  "/settings/connectors",
		"/settings/security/sign-out":      "/settings/security",
		"/settings/passkeys/remove":        "/settings/passkeys",
		"/logout":                          "/settings/user",
		"/login/passkey":                   "/settings/user",
	} {
		page := s.wants(path, b.Get(path), 405, "Nothing was submitted or changed").Contains(`href="` + back + `"`)
		equal(t, path+": Allow", page.Header.Get("Allow"), "POST")
	}
}

// Documents and pages without secrets are compressed. Responses of the token endpoint and pages with a form key or a
// token are not, because the compressed length would reveal parts of them.
func TestCompress_DocumentsButNoSecrets(t *testing.T) {
	s := shared(t)
	send := func(method, path string) http.Header {
		t.Helper()
		request, err := http.NewRequest(method, s.url+path, strings.NewReader(""))
		s.must(err)
		request.Header.Set("Accept-Encoding", "gzip")
		response, err := http.DefaultTransport.RoundTrip(request)
		s.must(err)
		s.must(response.Body.Close())
		return response.Header
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/static/site.css", "/login"} {
		equal(t, "GET "+path, send("GET", path).Get("Content-Encoding"), "gzip")
	}
	const clients = "/v1/account/tenants/5e0c4b5a-6b1f-4f7e-9a53-0f7f3f1c2a10/oauth-clients"
	for request, want := range map[string]bool{
		"GET /.well-known/oauth-authorization-server": true,
		"GET /login/forgotten":                        true, // too short to be compressed
		"GET " + clients:                              true,
		"GET /login/reset?token=x":                    false,
		"GET /email?token=x":                          false,
		"GET /invitation?token=x":                     false,
		"GET /settings/user":                          false,
		"POST /v1/account/oauth/token":                false,
		"POST /v1/account/oauth/introspect":           false,
		"POST /v1/account/oauth/revoke":               false,
		"POST " + clients:                             false,
	} {
		method, path, _ := strings.Cut(request, " ")
		may := slices.Contains(send(method, path).Values("Vary"), "Accept-Encoding")
		equal(t, request+" can be compressed", may, want)
	}
}

// Invariant O1 of package openapi for this service: the document describes every method of every API route, and
// describes no other. Pages and this service's health are served at the app's URL and are not in the document.
func TestO1_RoutesAreThoseDescribed(t *testing.T) {
	s := shared(t)
	described, err := openapi.New("https://api.example.org")
	s.must(err)
	others := []string{"/healthz", "/readyz", "/register", "/v1/", "/.well-known/", "/mcp/"} // the last four are 404
	var routed []string
	err = s.Router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil || slices.Contains(others, path) {
			return err
		}
		recorder := httptest.NewRecorder()
		target := strings.NewReplacer("{", "", "}", "").Replace(path)
		s.Router.ServeHTTP(recorder, httptest.NewRequest("BREW", target, nil))
		if strings.HasPrefix(recorder.Header().Get("Content-Type"), "text/html") && isForPeople(path) {
			return nil // a page refuses another method with a page
		}
		for method := range strings.SplitSeq(recorder.Header().Get("Allow"), ", ") {
			if method == "HEAD" { // implied by GET
				continue
			}
			operation, found := described.Find(method, path)
			if !found {
				t.Errorf("%s %s is not described", method, path)
			}
			routed = append(routed, method+" "+operation.Path)
		}
		return nil
	})
	if err != nil || len(routed) < 15 {
		t.Fatalf("%v, %d routes", err, len(routed))
	}
	for _, o := range described.Operations() {
		if is := slices.Contains(routed, o.Method+" "+o.Path); is != (o.Service == openapi.Authserver) {
			t.Errorf("%s %s is described for %s; is it a route of this service: %t", o.Method, o.Path, o.Service, is)
		}
	}
}
