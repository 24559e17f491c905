package app_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// An operator must not look for the fault in the wrong store.
func TestReadiness_NamesOnlyThePartThatHangs(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	s := serve(t, func(c *app.Config) {
		c.DatabaseURL = credential.Secret("postgres://nobody@" + silent.Addr().String() + "/nothing")
	})
	response, err := http.Get(s.url + "/readyz")
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	s.must(err)
	want := `{"keys":"does not answer","postgres":"does not answer","redis":"ok"}` + "\n" // keys are read from Postgres
	if response.StatusCode != http.StatusServiceUnavailable || string(body) != want {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	// Without keys, the server cannot tell a forged token from a valid one.
	request, err := http.NewRequestWithContext(
		t.Context(),
		http.MethodGet,
		s.url+"/v1/account/tenants/x/oauth-clients",
		nil,
	)
	s.must(err)
	request.Header.Set("Authorization", "Bearer a.b.c")
	answer, err := http.DefaultClient.Do(request)
	s.must(err)
	s.must(answer.Body.Close())
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a token without keys: %d", answer.StatusCode)
	}
}

// The process stays ready, without delay, while a flood of requests holds every connection to Postgres.
func TestReadiness_IsNotDelayedByFlood(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	s.ready(t)
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
				s.sendUnknownToken(flooding)
			}
		})
	}
	const waiting = `select count(*) from pg_locks
		where relation = 'account.personal_access_tokens'::regclass and not granted`
	await.True(t, "the flood holds every connection", func() bool { return s.count(waiting) >= 15 })
	if took := testkit.Fastest(10, func() { s.ready(t) }); took > 500*time.Millisecond {
		t.Errorf("ready after %s", took)
	}
}

// ready requires that the process is ready.
func (s *site) ready(t *testing.T) {
	t.Helper()
	response, err := http.Get(s.url + "/readyz")
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	s.must(err)
	if response.StatusCode != http.StatusOK || string(body) != `{"keys":"ok","postgres":"ok","redis":"ok"}`+"\n" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

// sendUnknownToken sends a request with a new personal access token, which needs a query to Postgres.
func (s *site) sendUnknownToken(ctx context.Context) {
	token, err := credential.PersonalAccessToken.New(rand.Reader)
	if err != nil {
		return
	}
	path := "/v1/account/tenants/" + s.fixture.WorkspaceID.String() + "/oauth-clients"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+token.Reveal())
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
	}
}
