package apitest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
)

// FailElsewhere makes another process of authserver count failures with count until the test ends. It returns when the
// limit is exceeded.
func (s *Server) FailElsewhere(count func(c *ratelimit.Limiter) time.Duration) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	full, ended := make(chan struct{}), sync.WaitGroup{}
	fill := sync.OnceFunc(func() { close(full) })
	elsewhere := ratelimit.NewLimiter(s.rates, slog.New(slog.DiscardHandler), time.Now)
	ended.Go(func() { elsewhere.Share(ctx) })
	ended.Go(func() {
		defer fill()
		for ctx.Err() == nil {
			if count(elsewhere) > 0 {
				fill()
				time.Sleep(5 * time.Millisecond) // room for another failure comes every 10 ms
			}
		}
	})
	s.t.Cleanup(func() { stop(); ended.Wait() })
	<-full
}

const limitedWithin = time.Minute

// Limited sends a request that is refused until the refusal is a 429, and returns that response. Some of the requests
// are refused without a 429, because the limit recovers continuously and processes share their counts with a delay.
// They are too few to reach the limit by themselves.
func (s *Server) Limited(send func() Answer) Answer {
	s.t.Helper()
	var answer Answer
	// If Redis answers one call too late, a process counts alone for 5 seconds.
	for end := time.Now().Add(limitedWithin); time.Now().Before(end); {
		if answer = send(); answer.Status != 400 && answer.Status != 401 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if answer.Status != 429 || answer.Text("error") != "rate_limited" ||
		answer.Text("error_description") == "" ||
		answer.Header.Get("Retry-After") == "" ||
		answer.Header.Get("Retry-After") == "0" ||
		answer.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%d %s %v, want 429 with Retry-After", answer.Status, answer.Body, answer.Header)
	}
	policy, state := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
	if !strings.HasPrefix(policy, `"refusals-per-`) ||
		!strings.HasSuffix(policy, ";w=60") ||
		!strings.HasSuffix(state, ";r=0;t="+answer.Header.Get("Retry-After")) {
		s.t.Errorf("RateLimit-Policy: %s, RateLimit: %s", policy, state)
	}
	return answer
}
