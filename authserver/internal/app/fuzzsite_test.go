package app_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
)

const (
	fuzzedBase = "https://api.example.org"
	tokenPath  = "/v1/account/oauth/token"
	verifier   = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
)

// A fuzzed is all of authserver without a listener, over real stores, and somebody who has everything that inputs may
// name.
type fuzzed struct {
	t        testing.TB
	world    *fixture.Fixture
	handler  http.Handler
	keeper   *grant.Service
	sessions *session.Sessions
	log      *testkit.Log
	from     fuzzkit.Addresses
	password credential.Secret // its hash: hashing takes long
	cast     cast
	left     int    // inputs before there is a new cast
	cookie   string // of whoever signed in last
}

// A cast is a workspace with one of each kind of client, and a member of it who holds every permission.
type cast struct {
	user                                     workspace.User
	connector, linked, basic                 client.Client
	linkedSecret, basicSecret, serviceSecret credential.Secret
	service                                  uuid.UUID
	pat                                      credential.Secret
}

func everything() perm.Set { return perm.ForConnectors().Union(perm.NewSet(perm.AccountAPIAccess)) }

// inputsPerCast keeps pages short, which list what a user ever made, and each client far from the number of refusals
// that is too many.
const inputsPerCast = 200

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	s := &fuzzed{t: fuzzkit.Outside(t), log: &testkit.Log{}}
	s.world = fixture.New(s.t)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	config := app.Config{
		Listen:      "127.0.0.1:0",
		BaseURL:     fuzzedBase,
		AppURL:      "http://localhost:8081",
		DatabaseURL: credential.Secret(s.world.Database.Authserver),
		RedisURL: credential.Secret(
			testkit.NewRedis(t).URL,
		),
		Keys:           credential.Secret(base64.RawURLEncoding.EncodeToString(key)),
		TrustedProxies: fuzzkit.Proxy,
		ClientDomains:  "none",
		Passkeys:       true,
		// never asked: see places
		UpstreamIssuer:       "https://127.0.0.1:1",
		UpstreamClientID:     "x",
		UpstreamClientSecret: "x",
		UpstreamName:         "Riverside",
	}
	if mistakes := config.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	made, err := app.New(t.Context(), config, log)
	s.must(err)
	s.handler, err = made.Handler(t.Context())
	s.must(err)
	s.openStores(config, seal.Keys{key}, log)
	s.password, err = session.HashPassword(browsertest.Password)
	s.must(err)
	return s
}

// openStores makes what stands codes and sessions up again, with the service's own keys.
func (s *fuzzed) openStores(config app.Config, keys seal.Keys, log *slog.Logger) {
	store, err := postgres.Open(context.Background(), config.DatabaseURL)
	s.must(err)
	s.t.Cleanup(store.Close)
	rdb, err := redis.Connect(config.RedisURL)
	s.must(err)
	s.t.Cleanup(func() { _ = rdb.Close() })
	mint, err := grant.NewTokenCodec(keys)
	s.must(err)
	s.keeper = grant.NewService(store, redis.NewGrants(rdb), mint, log)
	s.sessions = session.New(session.Deps{Rows: store.Sessions(), SignIns: store, Log: log, Unavailable: http.NotFound})
}

func (s *fuzzed) must(err error) {
	if err != nil {
		s.t.Fatal(err)
	}
}

// renew makes a new cast once the old one was used often, or what it is was changed.
func (s *fuzzed) renew() {
	if s.left--; s.left > 0 {
		return
	}
	s.left = inputsPerCast
	s.world.WorkspaceID = s.world.Workspace("Riverside Food Bank")
	c := cast{user: workspace.User{Email: "person-" + uuid.NewString() + "@example.org"}, service: uuid.New()}
	c.user.ID = s.world.User(c.user.Email)
	s.world.Exec(`update account.users set password_hash = $2 where id = $1`, c.user.ID, s.password.Reveal())
	s.world.Join(s.world.WorkspaceID, c.user.ID, everything()...)
	c.connector = s.world.Connector(fuzzedBase+"/v1", perm.ProgrammesRead, perm.ProgrammesWrite)
	c.linked, c.linkedSecret = s.world.Confidential(perm.ProgrammesRead)
	c.basic, c.basicSecret = s.world.Confidential(perm.ProgrammesRead)
	s.world.Exec(
		`update account.oauth_clients set token_endpoint_auth_method = 'client_secret_basic' where id = $1`,
		c.basic.ID,
	)
	var err error
	c.serviceSecret, err = credential.ClientSecret.New(rand.Reader)
	s.must(err)
	s.world.Exec(
		`insert into account.oauth_clients (id, kind, name, redirect_uris, required_permissions, token_endpoint_auth_method)
		values ($1, 'service', 'Reporting', '{}', '{}', 'client_secret_basic')`,
		c.service,
	)
	s.world.Exec(
		`insert into account.client_secrets (client_id, hash) values ($1, $2)`,
		c.service,
		credential.Hash(c.serviceSecret.Reveal()),
	)
	c.pat = s.world.Token(c.user.ID, everything()...)
	s.cast = c
}

// spoil says that what the cast is was changed: the next input gets another.
func (s *fuzzed) spoil() { s.left = 0 }

// stock is what words of inputs stand for.
func (s *fuzzed) stock() fuzzkit.Stock {
	basic := func(id uuid.UUID, secret credential.Secret) string {
		return base64.StdEncoding.EncodeToString([]byte(id.String() + ":" + secret.Reveal()))
	}
	return fuzzkit.Stock{
		Public: map[string]func() string{
			"tenant":    s.world.WorkspaceID.String,
			"connector": s.cast.connector.ID.String,
			"linked":    s.cast.linked.ID.String,
			"email":     func() string { return s.cast.user.Email },
		},
		Secret: map[string]func() string{
			"secret":     s.cast.linkedSecret.Reveal,
			"basic":      func() string { return basic(s.cast.basic.ID, s.cast.basicSecret) },
			"service":    func() string { return basic(s.cast.service, s.cast.serviceSecret) },
			"pat":        s.cast.pat.Reveal,
			"code":       func() string { return s.code(s.cast.connector) },
			"linkedcode": func() string { return s.code(s.cast.linked) },
			"basiccode":  func() string { return s.code(s.cast.basic) },
			"used":       func() string { code := s.code(s.cast.connector); s.exchanged(code); return code },
			"refresh":    func() string { return s.exchanged(s.code(s.cast.connector)).Text("refresh_token") },
			"old":        s.superseded,
			"access":     func() string { return s.exchanged(s.code(s.cast.connector)).Text("access_token") },
			"restaccess": s.restAccess,
			"password":   func() string { return browsertest.Password },
			"session":    s.signIn,
			"key":        func() string { return s.hiddenIn("/settings/developers?tenant=" + s.world.WorkspaceID.String()) },
			"ticket":     func() string { return s.hiddenIn("/oauth/authorize?" + s.asking().Encode()) },
		},
	}
}

// code is a new one, of a consent of the cast's user.
func (s *fuzzed) code(c client.Client) string {
	resource, challenge := fuzzedBase+"/v1", ""
	if c.Kind == client.Connector {
		resource, challenge = c.Resource, grant.ChallengeOf(verifier)
	}
	code, err := s.keeper.Open(context.Background(), grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      s.cast.user.ID,
		WorkspaceID: c.WorkspaceID,
		Permissions: c.Required,
		Resource:    resource,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}, grant.CodeTerms{ClientID: c.ID, RedirectURI: fixture.Callback, Resource: resource, Challenge: challenge})
	s.must(err)
	return code.Reveal()
}

func (s *fuzzed) exchanged(code string) fuzzkit.Answer {
	return s.tokens(
		"application/x-www-form-urlencoded",
		url.Values{"grant_type": {"authorization_code"}, "client_id": {s.cast.connector.ID.String()},
			"resource": {
				s.cast.connector.Resource,
			}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {fixture.Callback}}.Encode(),
	)
}

// superseded is a refresh token that was used.
func (s *fuzzed) superseded() string {
	old := s.exchanged(s.code(s.cast.connector)).Text("refresh_token")
	s.tokens(
		"application/x-www-form-urlencoded",
		url.Values{"grant_type": {"refresh_token"}, "client_id": {s.cast.connector.ID.String()},
			"resource": {s.cast.connector.Resource}, "refresh_token": {old}}.Encode(),
	)
	return old
}

func (s *fuzzed) restAccess() string {
	return s.tokens("application/json", `{"client_id":"`+s.cast.linked.ID.String()+`","client_secret":"`+s.cast.linkedSecret.Reveal()+
		`","code":"`+s.code(s.cast.linked)+`","redirect_uri":"`+fixture.Callback+`"}`).
		Text("access_token")
}

func (s *fuzzed) tokens(contentType, body string) fuzzkit.Answer {
	r := httptest.NewRequest("POST", tokenPath, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	answer := fuzzkit.Ask(s.handler, r)
	if answer.Status != http.StatusOK {
		s.t.Fatalf("no tokens: %d %s", answer.Status, answer.Body)
	}
	return answer
}

// signIn is the cookie of a browser at which the cast's user signed in just now.
func (s *fuzzed) signIn() string {
	recorder := httptest.NewRecorder()
	s.sessions.Load(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, event := session.Arrival(
			r,
			s.cast.user,
			session.Proof{Method: session.Password, PasswordHash: s.password},
			netip.MustParseAddr("192.0.2.1"),
		)
		s.must(s.sessions.Begin(w, r, by, event))
	})).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	s.cookie = recorder.Result().Cookies()[0].Value
	return s.cookie
}

// asking is a good request of the connector.
func (s *fuzzed) asking() url.Values {
	return url.Values{
		"response_type": {"code"},
		"client_id":     {s.cast.connector.ID.String()},
		"redirect_uri":  {fixture.Callback},
		"state":         {"s"},
		"resource": {
			s.cast.connector.Resource,
		},
		"code_challenge":        {grant.ChallengeOf(verifier)},
		"code_challenge_method": {"S256"},
	}
}

var hidden = regexp.MustCompile(`name="(?:key|ticket)" value="([^"]+)"`)

// hiddenIn is the key or the ticket of a page, as whoever signed in last sees it: without it a form is not theirs to
// send.
func (s *fuzzed) hiddenIn(target string) string {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("Cookie", "almoner="+s.cookie)
	if found := hidden.FindStringSubmatch(fuzzkit.Ask(s.handler, r).Body); found != nil {
		return html.UnescapeString(found[1])
	}
	return "none"
}
