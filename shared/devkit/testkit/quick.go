package testkit

import (
	"fmt"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Quick calls f until a call takes less than limit, and fails the test if none does. A busy machine delays calls, but
// not all of them; a caller that waits for what it must not wait for is delayed each time.
func Quick(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	fastest := time.Duration(1<<63 - 1)
	await.NoError(t, func() error {
		began := time.Now()
		f()
		if fastest = min(fastest, time.Since(began)); fastest < limit {
			return nil
		}
		return fmt.Errorf("the fastest call took %s, want less than %s", fastest, limit)
	})
}
