package app_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// An operator must not look for the fault in the wrong store.
func TestReadiness_NamesOnlyThePartThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
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
