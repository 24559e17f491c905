package token_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
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

// A countedEnv is a testEnv that counts the round trips to each store.
type countedEnv struct {
	*testEnv
	postgres, redis *testkit.Trips
}

func newCounted(t *testing.T) countedEnv {
	t.Helper()
	t.Parallel()
	s, b := apitest.New(t), countedEnv{}
	s.Fixture.Database.Authserver, b.postgres = testkit.CountTrips(t, s.Fixture.Database.Authserver)
	s.Redis.URL, b.redis = testkit.CountTrips(t, s.Redis.URL)
	s.Serve()
	b.testEnv = testEnvOf(t, s)
	b.Must(s.Keyring.Load(t.Context()))
	return b
}

// costs warms up the connections to the stores, sends the request many times and compares the number of round trips.
func (b countedEnv) costs(what string, each trips, send func()) {
	b.t.Helper()
	send()
	for try := 1; ; try++ {
		var got trips
		got.Redis = b.redis.Of(func() {
			got.Postgres = b.postgres.Of(func() {
				for range countedTimes {
					send()
				}
			})
		})
		if fits(got.Postgres, each.Postgres) && fits(got.Redis, each.Redis) {
			return
		}
		if try == countedTries {
			b.t.Errorf("%s: %d requests took %+v, want %+v each", what, countedTimes, got, each)
			return
		}
	}
}

func fits(got, each int) bool {
	least := each * countedTimes
	return got >= least && got <= least+tolerance
}

// withoutKeys returns a testEnv of a server whose signing keys cannot be read until restoreKeys.
func withoutKeys(t *testing.T) *testEnv {
	t.Helper()
	s := apitest.New(t)
	s.Fixture.Exec(`alter table account.signing_keys rename to signing_keys_hidden`)
	s.Serve()
	return testEnvOf(t, s)
}

func (b *testEnv) restoreKeys() {
	b.Fixture.Exec(`alter table account.signing_keys_hidden rename to signing_keys`)
}

// failElsewhere calls count until another process of authserver reaches the limit, and half as often on this server.
// Both report to the shared count, so this server refuses further failures. It stops the clock of this server's
// limiter, so that the limit stays exceeded.
func (b *testEnv) failElsewhere(count func(c *ratelimit.Limiter) time.Duration) {
	b.t.Helper()
	now := time.Now()
	if !b.FailuresAt.CompareAndSwap(nil, &now) {
		now = *b.FailuresAt.Load()
	}
	stopped := func(o *app.Options) { o.FailuresClock = func() time.Time { return now } }
	elsewhere, err := app.New(b.t.Context(), b.Config, slog.New(slog.DiscardHandler), stopped)
	b.Must(err)
	defer elsewhere.Close()
	reached := 0
	for count(elsewhere.Failures) == 0 {
		reached++
	}
	b.Must(elsewhere.Failures.Report(b.t.Context()))
	// The shared count recovers continuously. It takes half a minute to recover by half of the limit.
	for range reached / 2 {
		if wait := count(b.Failures); wait > 0 {
			b.t.Fatalf("limited before another process failed: %s", wait)
		}
	}
	b.Must(b.Failures.Report(b.t.Context()))
}

// failClientElsewhere is failElsewhere for the failures of a client.
func (b *testEnv) failClientElsewhere(id string) {
	b.t.Helper()
	b.failElsewhere(func(f *ratelimit.Limiter) time.Duration { return f.ForClient(id) })
}

// wantLimited requires a 429 with its headers.
func (b *testEnv) wantLimited(answer apitest.Answer) {
	b.t.Helper()
	b.Wants("limited", answer, 429, "rate_limited")
	wait := answer.Header.Get("Retry-After")
	policy, state := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
	if wait == "" || wait == "0" || !strings.HasPrefix(policy, `"refusals-per-`) ||
		!strings.HasSuffix(policy, ";w=60") || !strings.HasSuffix(state, ";r=0;t="+wait) {
		b.t.Errorf("Retry-After: %s, RateLimit-Policy: %s, RateLimit: %s", wait, policy, state)
	}
}
