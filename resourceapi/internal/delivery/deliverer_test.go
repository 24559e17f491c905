package delivery

import (
	"testing"
	"time"
)

// The waits grow from five seconds to six hours, a tenth more or less, and stay there for any number of failures.
func TestWaitAfter(t *testing.T) {
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

// Retry-After is a number of seconds or a date. More than six hours count as six hours.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                              0,
		"120":                           2 * time.Minute,
		"0":                             0,
		"-1":                            0,
		"soon":                          0,
		"999999999":                     6 * time.Hour,
		"18446744073709551615":          6 * time.Hour,
		"99999999999999999999999":       0,
		"Wed, 25 Nov 2026 12:10:00 GMT": 10 * time.Minute,
		"Wed, 25 Nov 2026 11:00:00 GMT": 0,
		"Wed, 25 Nov 2099 11:00:00 GMT": 6 * time.Hour,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}
