package torture

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// The Postgres suites: while it is down, slow or blocked, callers get 503, and soon afterwards everything works again
// without intervention. Nothing is half done: a grant continues with its client's token or, if a response was lost, a
// replay revokes it.

// normalWithin is the time that the product may take after Postgres works again.
const normalWithin = 5 * time.Second

// A postgresStage is a product of two processes that connect to Postgres through a relay.
type postgresStage struct {
	site
	running *stack.Stack
	relay   *Relay
}

// storesStack is shared by the tests that stop its stores or hold what requests need.
var (
	storesRelay = &Relay{}
	storesStack = newTurnstile(behind(storesRelay))
)

// behind returns the options of a stack of two processes that connect to Postgres through a relay.
func behind(relay *Relay) harness.Options {
	return harness.Options{Authservers: 2, Between: relay.Detour, StopsStores: true}
}

func newPostgresStage(t *testing.T) *postgresStage {
	t.Helper()
	relay, stacks := storesRelay, storesStack
	if harness.Long() {
		relay = &Relay{}
		stacks = newTurnstile(behind(relay))
	}
	running := stacks.enter(t)
	t.Cleanup(relay.reset)
	return &postgresStage{newSite(t, running), running, relay}
}

func (s *postgresStage) baseline(t *testing.T) *baseline {
	t.Helper()
	return newBaseline(t, s.site, func() {})
}

func TestPostgres_OutageLosesNothing(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 100)
	harness.Record(t, "Postgres %d times each: stopped and started, killed and started", times)
	s := newPostgresStage(t)
	for _, away := range []struct {
		name string
		end  func()
	}{{"restart", s.running.Postgres.Stop}, {"immediate crash", s.running.Postgres.Kill}} {
		t.Run(away.name, func(t *testing.T) {
			for range times {
				d := s.baseline(t)
				busy := s.refreshing(t, 4)
				away.end()
				d.wantsUnavailable(t, func() harness.Answer { return d.list(t) })[0].WantsRetryAfter(t).
					WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE")
				must(t, s.running.Postgres.Restart(context.WithoutCancel(t.Context())))
				s.wantsNormalSoon(t)
				busy()
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}

// refreshing runs clients that refresh until the returned function is called. That function checks that no client was
// half refused: a client whose token was refused had lost a response, and its whole grant is dead.
func (s *postgresStage) refreshing(t *testing.T, clients int) (wantsWhole func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan func(), clients)
	for range clients {
		tokens := s.connector.Connect(t, s.owner)
		go func() {
			// settled means that the last request got a response, so the state of its token is known.
			lost, settled := false, true
			for ctx.Err() == nil || !settled {
				answer, err := s.connector.TryPost(t, s.connector.RefreshForm(tokens.RefreshToken))
				settled = err == nil && answer.Status != http.StatusServiceUnavailable
				switch {
				case !settled:
					lost = true
					time.Sleep(50 * time.Millisecond)
				case answer.Status == http.StatusOK:
					tokens = answer.Tokens(t)
				default:
					ended <- func() {
						answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
						if !lost {
							t.Errorf("refused although no response was lost:\n%s", answer)
						}
						s.connector.WantsRevoked(t, tokens)
					}
					return
				}
			}
			ended <- func() { s.connector.WantsWorking(t, tokens) }
		}()
	}
	return func() {
		t.Helper()
		stop()
		for range clients {
			(<-ended)()
		}
	}
}

// wantsNormalSoon waits until every process works again: each kind of request must succeed several times in a row.
func (s *postgresStage) wantsNormalSoon(t *testing.T) {
	t.Helper()
	s.Database.Reconnect()
	began, good := time.Now(), 0
	for good < 4 {
		list, clients := s.list(t), s.As(s.Token).Get(t, s.Clients())
		if good++; list.Status != http.StatusOK || clients.Status != http.StatusOK {
			good = 0
			if took := time.Since(began); took > atMost(normalWithin) {
				t.Fatalf("not normal again after %s:\n%s\n%s", took, list, clients)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// slowdown is shorter than the time after which package pg treats Postgres as silent.
const slowdown = 150 * time.Millisecond

func TestPostgres_SlowQueriesStillSucceed(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 100)
	harness.Record(t, "Postgres %d times %s slower at every query", times, slowdown)
	s := newPostgresStage(t)
	for range times {
		d := s.baseline(t)
		s.relay.Slow(slowdown)
		busy := s.refreshing(t, 4)
		d.wantsUnaffected(t)
		d.honest = d.connector.WantsWorking(t, d.honest)
		s.relay.Slow(0)
		s.wantsNormalSoon(t)
		busy()
		d.wantsCode(t)
		d.wantsKept(t)
	}
}
