package token_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	// enough that one extra round trip per request exceeds the tolerance
	countedTimes = 20
	// tolerance for new connections, prepared statements and batched writes to Redis
	tolerance    = 12
	countedTries = 3 // retries for other activity: an extra round trip of the request itself occurs in each
)

// trips are the round trips of one request.
type trips struct{ Postgres, Redis int }

// A countedServer counts the round trips to each store.
type countedServer struct {
	*apitest.Server
	postgres, redis *testkit.Trips
}

func startCounted(t *testing.T) countedServer {
	t.Helper()
	s := countedServer{Server: apitest.New(t)}
	s.Fixture.Database.Authserver, s.postgres = testkit.CountTrips(t, s.Fixture.Database.Authserver)
	s.Redis.URL, s.redis = testkit.CountTrips(t, s.Redis.URL)
	s.Serve()
	if err := s.Keyring.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// countTrips warms up the connections to the stores, sends the request many times and compares the number of round
// trips.
func countTrips(t *testing.T, s countedServer, what string, each trips, send func()) {
	t.Helper()
	send()
	for try := 1; ; try++ {
		var got trips
		got.Redis = s.redis.Of(func() {
			got.Postgres = s.postgres.Of(func() {
				for range countedTimes {
					send()
				}
			})
		})
		if fits(got.Postgres, each.Postgres) && fits(got.Redis, each.Redis) {
			return
		}
		if try == countedTries {
			t.Errorf("%s: %d requests took %+v, want %+v each", what, countedTimes, got, each)
			return
		}
	}
}

func fits(got, each int) bool {
	least := each * countedTimes
	return got >= least && got <= least+tolerance
}

// startWithoutKeys starts a server with signing keys that cannot be read until restoreKeys.
func startWithoutKeys(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.New(t)
	s.Fixture.Exec(`alter table account.signing_keys rename to signing_keys_hidden`)
	s.Serve()
	return s
}

func restoreKeys(s *apitest.Server) {
	s.Fixture.Exec(`alter table account.signing_keys_hidden rename to signing_keys`)
}

// setAuthMethod sets the authentication method of a confidential client at the token endpoint.
func setAuthMethod(s *apitest.Server, c client.Client, method client.AuthMethod) {
	s.Fixture.Exec(`update account.oauth_clients set token_endpoint_auth_method = $2 where id = $1`, c.ID, method)
}

// failElsewhere calls count until another process of authserver reaches the limit, and half as often on this server.
// Both report to the shared count, so this server refuses further failures. It stops the clock of this server's
// limiter, so that the limit stays exceeded.
func failElsewhere(t *testing.T, s *apitest.Server, count func(c *ratelimit.Limiter) time.Duration) {
	t.Helper()
	now := time.Now()
	if !s.FailuresAt.CompareAndSwap(nil, &now) {
		now = *s.FailuresAt.Load()
	}
	stopped := func(o *app.Options) { o.FailuresClock = func() time.Time { return now } }
	elsewhere, err := app.New(t.Context(), s.Config, slog.New(slog.DiscardHandler), stopped)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	reached := 0
	for count(elsewhere.Failures) == 0 {
		reached++
	}
	if err := elsewhere.Failures.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The shared count recovers continuously. It takes half a minute to recover by half of the limit.
	for range reached / 2 {
		if wait := count(s.Failures); wait > 0 {
			t.Fatalf("limited before another process failed: %s", wait)
		}
	}
	if err := s.Failures.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantLimited sends a request that must be refused with a 429.
func wantLimited(t *testing.T, send func() apitest.Answer) {
	t.Helper()
	answer := send()
	if answer.Status != 429 || answer.Text("error") != "rate_limited" ||
		answer.Text("error_description") == "" ||
		answer.Header.Get("Retry-After") == "" ||
		answer.Header.Get("Retry-After") == "0" ||
		answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v, want 429 with Retry-After", answer.Status, answer.Body, answer.Header)
	}
	policy, state := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
	if !strings.HasPrefix(policy, `"refusals-per-`) ||
		!strings.HasSuffix(policy, ";w=60") ||
		!strings.HasSuffix(state, ";r=0;t="+answer.Header.Get("Retry-After")) {
		t.Errorf("RateLimit-Policy: %s, RateLimit: %s", policy, state)
	}
}
