package app_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A site is authserver on localhost, over real stores.
type site struct {
	t       *testing.T
	fixture *fixture.Fixture
	url     string
	log     *log
}

// serve starts a site. change modifies its configuration.
func serve(t *testing.T, change func(*app.Config)) *site {
	t.Helper()
	s := &site{t: t, fixture: fixture.New(t), log: &log{}}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	listen := free(t)
	_, port, _ := net.SplitHostPort(listen)
	s.url = "http://localhost:" + port
	config := app.Config{
		Listen:         listen,
		BaseURL:        "https://api.example.org",
		AppURL:         s.url,
		DatabaseURL:    credential.Secret(s.fixture.Database.Authserver),
		RedisURL:       credential.Secret(testkit.NewRedis(t).URL),
		Keys:           credential.Secret(base64.RawURLEncoding.EncodeToString(key)),
		UpstreamName:   "Riverside",
		TrustedProxies: "127.0.0.1",
		StoreWait:      testkit.StoreWait,
	}
	change(&config)
	if mistakes := config.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	made, err := app.New(t.Context(), config, slog.New(slog.NewTextHandler(s.log, nil)))
	s.must(err)
	t.Cleanup(func() {
		for line := range strings.Lines(s.log.String()) {
			if t.Failed() && strings.Contains(line, "level=ERROR") {
				t.Log(line)
			}
		}
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- made.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	s.awaitAlive()
	return s
}

func free(t *testing.T) string {
	t.Helper()
	port, err := localstore.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", port)
}

func (s *site) awaitAlive() {
	s.t.Helper()
	await.NoError(s.t, func() error { // without its stores, a process listens after three seconds
		response, err := http.Get(s.url + "/healthz")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	})
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) browser() *browsertest.Browser { return browsertest.At(s.t, s.url) }

// person creates a user with a password.
func (s *site) person() browsertest.Person {
	s.t.Helper()
	email := "person-" + uuid.NewString()[:8] + "@example.org"
	id := s.fixture.User(email)
	hash, err := session.HashPassword(browsertest.Password, session.LowestCost())
	s.must(err)
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hash.Reveal())
	return browsertest.Person{ID: id, Email: email}
}

func (s *site) signedIn(who browsertest.Person) *browsertest.Browser {
	s.t.Helper()
	b := s.browser()
	b.SignIn(who)
	return b
}

// usedSecondFactor records that a user used a second factor at every sign-in.
func (s *site) usedSecondFactor(who browsertest.Person) {
	s.t.Helper()
	s.fixture.Exec(`update account.sign_ins set second_factor_at = now() where user_id = $1`, who.ID)
}

// count runs a query for one number as the owner.
func (s *site) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	s.must(s.fixture.Owner.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

// events counts audit events of a user.
func (s *site) events(user uuid.UUID, action string) int {
	s.t.Helper()
	return s.count(`select count(*) from account.audit_events where user_id = $1 and action = $2`, user, action)
}

// stale makes the last authentication of every session too old.
func (s *site) stale() {
	s.t.Helper()
	rows, err := s.fixture.Owner.Query(s.t.Context(), `select token, data from account.sessions`)
	s.must(err)
	sessions := map[string][]byte{}
	for rows.Next() {
		var token string
		var data []byte
		s.must(rows.Scan(&token, &data))
		sessions[token] = data
	}
	s.must(rows.Err())
	for token, data := range sessions {
		deadline, values, err := scs.GobCodec{}.Decode(data)
		s.must(err)
		values["proved_at"] = time.Now().Add(-session.Freshness).Unix()
		data, err = scs.GobCodec{}.Encode(deadline, values)
		s.must(err)
		s.fixture.Exec(`update account.sessions set data = $2 where token = $1`, token, data)
	}
}

// inside reports whether a user is signed in in the browser.
func inside(b *browsertest.Browser) bool { return b.Get("/settings/user").Status == http.StatusOK }

// A log stores what the site has logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
