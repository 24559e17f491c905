package torture

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// A store stops responding while clients refresh and exchange through two processes, and later resumes with the
// requests that it had received. A client that got 503 and retries ends with a working grant (package grant, G10).

const (
	stallRefreshers = 40
	stallExchangers = 10
	stallClients    = stallRefreshers + stallExchangers
	beforeStall     = 100 * time.Millisecond
	// stallTries bounds the requests of one client, since many are refused immediately while the store is silent.
	stallTries = 2000
	// refusedWithin is the time to a 503 while a store is silent (issue 19, point 1).
	refusedWithin = 300 * time.Millisecond
)

var stallDurations = []time.Duration{
	600 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3 * time.Second, 5500 * time.Millisecond,
}

func TestStalls_OfRedisLoseNoGrant(t *testing.T) {
	testStalls(t, func(s *stack.Stack) server { return s.Redis })
}

func TestStalls_OfPostgresLoseNoGrant(t *testing.T) {
	testStalls(t, func(s *stack.Stack) server { return s.Postgres })
}

func testStalls(t *testing.T, store func(*stack.Stack) server) {
	onlyLong(t, "stalls", measuresTime)
	durations, rounds := stallDurations, harness.Rounds(1, 10)
	if !harness.Long() {
		durations = []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond}
	}
	running := harness.Private(t, harness.Options{Authservers: 2, Settings: harness.AsInProduction()})
	s := &stalling{site: newSite(t, running), store: store(running)}
	t.Cleanup(s.store.Resume)
	for _, duration := range durations {
		s.refused = nil
		for range rounds {
			s.stall(t, duration)
		}
		slices.Sort(s.refused)
		if len(s.refused) == 0 {
			t.Errorf("%s: no client noticed the stall", duration)
			continue
		}
		harness.Record(t,
			"silent for %s: %d grants, 0 lost; %d answers of 503, half of them within %s, 99 of 100 within %s",
			duration, rounds*stallClients, len(s.refused), quantile(s.refused, 0.5), quantile(s.refused, 0.99))
		// Most clients are refused immediately, because the store is known to be silent. The first ones share a busy
		// machine, and in the short form all clients share it with other suites.
		part, limit := 0.5, 2*refusedWithin
		if harness.Long() {
			part, limit = 0.9, refusedWithin
		}
		if took := quantile(s.refused, part); took > limit {
			t.Errorf("%g of the 503 took up to %s, want at most %s", part, took, limit)
		}
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Millisecond)
}

type stalling struct {
	site
	store server

	mu      sync.Mutex
	refused []time.Duration // duration of each 503
}

// stall runs the clients, one of them with a superseded token, while the store is silent.
func (s *stalling) stall(t *testing.T, silence time.Duration) {
	t.Helper()
	stop, end := context.WithCancel(t.Context())
	defer end()
	var group sync.WaitGroup
	for i := range stallRefreshers {
		tokens := s.connector.Connect(t, s.owner)
		group.Go(func() { s.refreshes(stop, t, tokens, i%2 == 0) })
	}
	codes := make([]func(), stallExchangers)
	for i := range codes {
		attempt := s.connector.Begin()
		code := attempt.Code(t, s.owner)
		codes[i] = func() { s.exchanges(t, attempt, code, i%2 == 0) }
	}
	stolen := s.connector.Connect(t, s.owner)
	current := s.connector.Refresh(t, stolen.RefreshToken).Tokens(t)
	time.Sleep(beforeStall) // so that requests of every kind are under way
	must(t, s.store.Pause())
	defer s.store.Resume()
	for _, exchange := range codes {
		group.Go(exchange)
	}
	group.Go(func() {
		s.tries(t, true, func() harness.Answer { return s.connector.Refresh(t, stolen.RefreshToken) }).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	})
	time.Sleep(silence)
	s.store.Resume()
	time.Sleep(beforeStall)
	end()
	group.Wait()
	s.connector.WantsRevoked(t, current)
}

// refreshes refreshes until ctx ends, and then once more.
func (s *stalling) refreshes(ctx context.Context, t *testing.T, tokens harness.Tokens, atOnce bool) {
	for more, kept := true, true; more && kept; {
		more = ctx.Err() == nil
		tokens, kept = s.next(t, "grant", atOnce, func() harness.Answer {
			return s.connector.Refresh(t, tokens.RefreshToken)
		})
	}
}

func (s *stalling) exchanges(t *testing.T, attempt harness.Attempt, code string, atOnce bool) {
	tokens, kept := s.next(t, "code", atOnce, func() harness.Answer { return attempt.Post(t, attempt.CodeForm(code)) })
	if kept {
		s.next(t, "grant", atOnce, func() harness.Answer { return s.connector.Refresh(t, tokens.RefreshToken) })
	}
}

// next repeats a request until it succeeds, and returns the tokens. Any refusal is the loss of what it presents.
func (s *stalling) next(
	t *testing.T, presents string, atOnce bool, send func() harness.Answer,
) (tokens harness.Tokens, kept bool) {
	answer := s.tries(t, atOnce, send)
	if answer.Status != http.StatusOK {
		t.Errorf("a %s was lost:\n%s", presents, answer)
		return harness.Tokens{}, false
	}
	return answer.Tokens(t), true
}

// tries repeats a request until its status is not 503, either immediately or after the Retry-After time.
func (s *stalling) tries(t *testing.T, atOnce bool, send func() harness.Answer) harness.Answer {
	var answer harness.Answer
	for range stallTries {
		began := time.Now()
		if answer = send(); answer.Status != http.StatusServiceUnavailable {
			return answer
		}
		answer.WantsRetryAfter(t)
		s.mu.Lock()
		s.refused = append(s.refused, time.Since(began))
		s.mu.Unlock()
		if !atOnce {
			time.Sleep(retryAfter)
		}
	}
	t.Errorf("only 503 responses to %d requests", stallTries)
	return answer
}

const measuresTime = "it measures response times, which needs a quiet machine"
