package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealthGate_WaitsForServerWithinLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p healthGate
		answers := func(within time.Duration) bool { return p.available(t.Context(), within) }
		if !answers(0) {
			t.Error("the zero value reports a silent server")
		}
		probes, recovered := 0, time.Now().Add(time.Second)
		probe := func() bool {
			probes++
			return time.Now().After(recovered)
		}
		p.stopped(probe)
		p.stopped(func() bool { t.Error("probed twice"); return true })
		began := time.Now()
		if answers(200*time.Millisecond) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %s", time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if p.available(over, time.Hour) {
			t.Error("reports true after the caller's context ended")
		}
		if !answers(time.Minute) || time.Since(began) > 2*time.Second {
			t.Errorf("after %s", time.Since(began))
		}
		if !answers(0) || probes < 10 {
			t.Errorf("%d probes", probes)
		}
	})
}
