package bench

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// TestStartup measures how long each service takes from its start to its first "ready", with the stores up.
func TestStartup(t *testing.T) {
	r := begin(t, "startup")
	times := 9
	if testing.Short() {
		times = 3
	}
	running := harness.Private(t, harness.Options{Durable: true})
	r.line("Each service was started %d times, with the stores up, and asked /readyz every 30 ms.", times)
	for _, service := range []*stack.Service{running.Authservers[0], running.Resourceapi} {
		var took []float64
		for range times {
			service.Stop()
			began := time.Now()
			must(t, service.Restart(t.Context()))
			took = append(took, time.Since(began).Seconds())
		}
		r.wants("start to ready, "+service.Name+", median", "below 1 s", middle(took), " s", middle(took) < 1)
	}
	r.write(t)
}
