package accounttest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/failures"
)

// FailElsewhere lets another process of authserver see failures, which count counts, without end until the test ends. It
// returns once there were too many.
func (s *Site) FailElsewhere(count func(ctx context.Context, c *failures.Counter) time.Duration) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	elsewhere := func() *failures.Counter { return failures.NewCounter(s.rates, slog.New(slog.DiscardHandler), time.Now) }
	full, ended := make(chan struct{}), sync.WaitGroup{}
	fill := sync.OnceFunc(func() { close(full) })
	ended.Go(func() {
		defer fill()
		for one := elsewhere(); ctx.Err() == nil; {
			if count(ctx, one) > 0 {
				fill()
				one = elsewhere() // which would ask Redis no more
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	s.t.Cleanup(func() { stop(); ended.Wait() })
	<-full
}

// Limited sends a request that is refused until the refusal is 429, and returns that. Now and then one is answered in full: what
// is over the limit comes to rest all the time.
func (s *Site) Limited(send func() Answer) Answer {
	s.t.Helper()
	var answer Answer
	for range 100 {
		if answer = send(); answer.Status != 400 && answer.Status != 401 {
			break
		}
	}
	if answer.Status != 429 || answer.Text("error") != "rate_limited" || answer.Text("error_description") == "" || answer.Header.Get("Retry-After") == "" ||
		answer.Header.Get("Retry-After") == "0" || answer.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%d %s %v, want 429 with Retry-After", answer.Status, answer.Body, answer.Header)
	}
	return answer
}
