package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestQuick_CallsUntilOneCallIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		Quick(t, 2, func() {
			time.Sleep([]time.Duration{3, 2, 1}[calls])
			calls++
		})
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (*recorder) Helper()                 {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestQuick_FailsIfEveryCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		Quick(r, time.Second, func() { time.Sleep(time.Second) })
		if !r.failed {
			t.Error("no call was quick, and the test did not fail")
		}
	})
}
