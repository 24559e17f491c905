package testkit

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Must ends the test if what it arranges has failed.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Connect opens a session with a URL, which lasts until the test ends.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	session, err := pgx.Connect(t.Context(), url)
	Must(t, err)
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}
