package delivery

import (
	"testing"
	"time"
)

// The waits grow from five seconds to six hours, a tenth more or less, and stay there for any number of failures.
func TestWaitAfter(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		0:     5 * time.Second,
		1:     20 * time.Second,
		2:     80 * time.Second,
		6:     5 * time.Second << 12,
		7:     6 * time.Hour,
		8:     6 * time.Hour,
		1_000: 6 * time.Hour,
	} {
		for range 100 {
			if got := waitAfter(failures); got < want*9/10 || got > want*11/10 {
				t.Fatalf("after %d failures: %s, want about %s", failures, got, want)
			}
		}
	}
}
