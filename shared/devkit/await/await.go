// Package await polls in tests for what another process or a server does, which sends the test no event. A test that
// waits for its own process uses a channel or testing/synctest instead. No caller chooses the limit: how long a wait
// takes depends on the machine, and whether a test passes must not.
package await

import (
	"errors"
	"testing"
	"time"
)

// Long is the limit for what always happens: only a test that fails waits for so long.
const Long = 4 * time.Minute

const (
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond
)

var errNotYet = errors.New("not yet")

// True calls happened until it returns true, and fails the test after Long.
func True(t testing.TB, what string, happened func() bool) {
	t.Helper()
	if err := poll(Long, func() error {
		if happened() {
			return nil
		}
		return errNotYet
	}); err != nil {
		t.Fatalf("not within %s: %s", Long, what)
	}
}

// NoError calls try until it returns nil, and fails the test with its last error after Long.
func NoError(t testing.TB, try func() error) {
	t.Helper()
	if err := poll(Long, try); err != nil {
		t.Fatalf("still failing after %s: %v", Long, err)
	}
}

// poll pauses for a tenth of the time that has passed, so that it notices short waits early and does not load the
// machine during long ones.
func poll(limit time.Duration, try func() error) error {
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			return nil
		}
		passed := time.Since(began)
		if passed > limit {
			return err
		}
		time.Sleep(min(max(passed/10, shortestPause), longestPause))
	}
}
