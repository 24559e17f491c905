package apitest

import (
	"log/slog"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
)

// FailElsewhere calls count until another process of authserver reaches the limit, and half as often on this server.
// Both report to the shared count, so this server refuses further failures. It stops the clock of this server's
// limiter, so that the limit stays exceeded.
func (s *Server) FailElsewhere(count func(c *ratelimit.Limiter) time.Duration) {
	s.t.Helper()
	now := s.stopFailuresClock()
	stopped := app.WithFailuresClock(func() time.Time { return now })
	elsewhere, err := app.New(s.t.Context(), s.config, slog.New(slog.DiscardHandler), stopped)
	s.must(err)
	defer elsewhere.Close()
	reached := 0
	for count(elsewhere.Failures) == 0 {
		reached++
	}
	s.must(elsewhere.Failures.Report(s.t.Context()))
	// The shared count recovers continuously. It takes half a minute to recover by half of the limit.
	for range reached / 2 {
		if wait := count(s.Failures); wait > 0 {
			s.t.Fatalf("limited before another process failed: %s", wait)
		}
	}
	s.must(s.Failures.Report(s.t.Context()))
}

func (s *Server) stopFailuresClock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failuresClock.IsZero() {
		s.failuresClock = time.Now()
	}
	return s.failuresClock
}

// failuresNow is the clock of the failures' limiter.
func (s *Server) failuresNow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failuresClock.IsZero() {
		return s.failuresClock
	}
	return time.Now()
}

// Limited sends a request that must be refused with a 429, and returns the response.
func (s *Server) Limited(send func() Answer) Answer {
	s.t.Helper()
	answer := send()
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
