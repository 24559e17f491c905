package postgres_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
)

// F26: the first request after a restart of PostgreSQL is answered.
func TestOpen_ConnectionThatPostgresClosedIsNotUsed(t *testing.T) {
	w := fixture.New(t)
	store, err := postgres.Open(t.Context(), credential.Secret(w.Database.Authserver))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	for range 3 {
		if _, err := store.SigningKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Database.EndSessions(t)
	}
}
