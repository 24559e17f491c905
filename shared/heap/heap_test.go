package heap

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestTune_KeepsOperatorSettings(t *testing.T) {
	restore := func() { debug.SetGCPercent(100); debug.SetMemoryLimit(math.MaxInt64) }
	t.Cleanup(restore)
	for _, c := range []struct {
		gogc, memory string
		wantPercent  int
		wantLimit    int64
	}{
		{"", "", percent, limit},
		{"50", "", 100, limit}, // 100 is what Go read at its start
		{"", "1GiB", percent, math.MaxInt64},
	} {
		restore()
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.memory)
		Tune()
		gotPercent, gotLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
		if gotPercent != c.wantPercent || gotLimit != c.wantLimit {
			t.Errorf("GOGC %q, GOMEMLIMIT %q: %d %%, %d bytes", c.gogc, c.memory, gotPercent, gotLimit)
		}
	}
}
