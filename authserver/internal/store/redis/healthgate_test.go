package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPulse_WaitsForASilentServerAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p healthGate
		answers := func(within time.Duration) bool { return p.beats(t.Context(), within) }
		if !answers(0) {
			t.Error("a server of which nothing is known counts as silent")
		}
		probes, recovered := 0, time.Now().Add(time.Second)
		probe := func() bool {
			probes++
			return time.Now().After(recovered)
		}
		p.stopped(probe)
		p.stopped(func() bool { t.Error("probed by two"); return true })
		began := time.Now()
		if answers(200*time.Millisecond) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %s", time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if p.beats(over, time.Hour) {
			t.Error("answers, although the caller has left")
		}
		if !answers(time.Minute) || time.Since(began) > 2*time.Second {
			t.Errorf("after %s", time.Since(began))
		}
		if !answers(0) || probes < 10 {
			t.Errorf("%d probes", probes)
		}
	})
}
