package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFastest_IsTheShortestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		got := Fastest(3, func() {
			time.Sleep([]time.Duration{3, 1, 2}[calls])
			calls++
		})
		if got != 1 || calls != 3 {
			t.Errorf("%d after %d calls", got, calls)
		}
	})
}
