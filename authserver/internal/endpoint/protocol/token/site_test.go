package token_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
)

const (
	// enough that one extra round trip per request exceeds the tolerance
	countedTimes = 20
	// tolerance for new connections, prepared statements and batched writes to Redis
	tolerance    = 12
	countedTries = 3 // retries for other activity: an extra round trip of the request itself occurs in each
)

// countTrips warms up the connections to the stores, sends the request many times and compares the number of round
// trips.
func countTrips(t *testing.T, s *apitest.Server, what string, each apitest.Trips, send func()) {
	t.Helper()
	send()
	for try := 1; ; try++ {
		var got apitest.Trips
		got.Redis = s.RedisTrips.Of(func() {
			got.Postgres = s.PostgresTrips.Of(func() {
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
