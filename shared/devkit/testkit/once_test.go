package testkit

import (
	"testing"
)

func TestOnce_BuildsForFirstTestAndFailsEach(t *testing.T) {
	built := 0
	number := Once(func(t testing.TB) int {
		t.Cleanup(func() { built = -1 })
		built++
		return built
	})
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			if got := number(t); got != 1 || built != 1 {
				t.Errorf("%d, built %d times", got, built)
			}
		})
	}
	fails := Once(func(t testing.TB) int { t.Fatal("no server"); return 0 })
	for range 2 {
		r := &recorder{TB: t}
		if fails(r); !r.failed {
			t.Error("the value could not be built, and the test did not fail")
		}
	}
}
