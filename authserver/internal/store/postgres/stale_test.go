package postgres_test

import (
	"testing"
)

// F26: the first request after a restart of PostgreSQL succeeds.
func TestOpen_ClosedConnectionIsNotReused(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	for range 2 {
		if _, err := l.SigningKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.fixture.Database.EndSessions(t)
	}
}
