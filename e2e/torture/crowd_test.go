package torture

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	honestClients = 6
	racesOn       = 2
)

// during runs clients that refresh or race while a Redis of several servers is in trouble, and then checks their
// results.
func (s site) during(t *testing.T, trouble func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait() // even if trouble fails: the clients report to this test
	defer stop()
	var refreshed, unavailable atomic.Int64
	for i := range honestClients + racesOn {
		tokens := s.connector.Connect(t, s.owner)
		clients.Go(func() {
			for ctx.Err() == nil {
				if i >= honestClients {
					s.race(t, tokens)
					tokens = s.reconnect(t)
					continue
				}
				answer := s.connector.Refresh(t, tokens.RefreshToken)
				switch answer.Status {
				case http.StatusOK:
					tokens = answer.Tokens(t)
					refreshed.Add(1)
				case http.StatusServiceUnavailable:
					unavailable.Add(1)
					time.Sleep(retryAfter)
				default:
					t.Errorf("a current token was refused:\n%s", answer)
					return
				}
			}
			if i < honestClients {
				s.wantsWorkingSoon(t, tokens)
			}
		})
	}
	trouble()
	stop()
	clients.Wait()
	t.Logf("%d refreshed, %d unavailable", refreshed.Load(), unavailable.Load())
	if refreshed.Load() == 0 {
		t.Error("no client refreshed")
	}
}

// wantsWorkingSoon checks that the grant works. At first it allows 503 responses.
func (s site) wantsWorkingSoon(t *testing.T, tokens harness.Tokens) {
	const inARow = 4 // so that each process has responded
	end := time.Now().Add(atMost(normalWithin))
	for good := 0; good < inARow; {
		answer := s.connector.Refresh(t, tokens.RefreshToken)
		if answer.Status == http.StatusServiceUnavailable && time.Now().Before(end) {
			good = 0
			time.Sleep(retryAfter)
			continue
		}
		tokens = answer.Tokens(t)
		good++
	}
	s.connector.WantsWorking(t, tokens)
}

// race presents one token concurrently: at most one request gets the next token.
func (s site) race(t *testing.T, tokens harness.Tokens) {
	winners := 0
	refresh := func(int) harness.Answer { return s.connector.Refresh(t, tokens.RefreshToken) }
	for _, answer := range harness.Concurrently(4, refresh) {
		switch answer.Status {
		case http.StatusOK:
			winners++
		case http.StatusServiceUnavailable:
		default:
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
	}
	if winners > 1 {
		t.Errorf("%d racers won", winners)
	}
}

// reconnect makes a new connection as soon as the product allows it.
func (s site) reconnect(t *testing.T) harness.Tokens {
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		attempt := s.connector.Begin()
		code := tryCode(t, attempt, s.owner)
		if code == "" {
			continue
		}
		if answer := attempt.Post(t, attempt.CodeForm(code)); answer.Status == http.StatusOK {
			return answer.Tokens(t)
		}
	}
	t.Errorf("no connection within %s", calmWithin)
	return harness.Tokens{}
}
