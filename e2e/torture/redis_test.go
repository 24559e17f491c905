package torture

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The Redis suites: Postgres knows what Redis forgets. While Redis refuses or does not respond, requests that need it
// get 503, never a client error.

func TestRedis_LostDataIsRepaired(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Record(t, "%d times each: FLUSHALL, an older copy put back", times)
	running := startedPair(t)
	s, redis := newSite(t, running), newTrouble(running)
	for name, lose := range map[string]func(context.Context) error{
		"FLUSHALL":                  func(context.Context) error { return flushAll(running.RedisURL) },
		"an older copy is put back": redis.putBack,
	} {
		t.Run(name, func(t *testing.T) {
			for range times {
				d := newBaseline(t, s, func() { must(t, redis.keepCopy()) })
				must(t, lose(context.WithoutCancel(t.Context())))
				d.wantsKept(t)
			}
		})
	}
}

// retryAfter is the Retry-After of a 503: by then the requests to the silent Redis are undone.
const retryAfter = 2 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRedis_RefusalLosesNothing checks that a Redis that responds with errors decides nothing: everything works again
// immediately afterwards.
func TestRedis_RefusalLosesNothing(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Record(t, "%d times each: OOM, READONLY, MASTERDOWN, NOREPLICAS", times)
	running := startedPair(t)
	s := newSite(t, running)
	const nowhere = "REPLICAOF 127.0.0.1 1" // no master is there
	for _, refusal := range []struct {
		name       string
		begin, end []string
	}{
		{"OOM", []string{"CONFIG SET maxmemory 1mb"}, []string{"CONFIG SET maxmemory 0"}},
		{"READONLY", []string{nowhere}, []string{"REPLICAOF NO ONE"}},
		{
			"MASTERDOWN",
			[]string{"CONFIG SET replica-serve-stale-data no", nowhere},
			[]string{"REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"},
		},
		{"NOREPLICAS", []string{"CONFIG SET min-replicas-to-write 1"}, []string{"CONFIG SET min-replicas-to-write 0"}},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			for range times {
				d := newBaseline(t, s, func() {})
				tell(t, running.RedisURL, refusal.begin...)
				for _, answer := range []harness.Answer{
					d.connector.Refresh(t, d.honest.RefreshToken), d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)),
				} {
					answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
				}
				d.wantsUnaffected(t)
				tell(t, running.RedisURL, refusal.end...)
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}
