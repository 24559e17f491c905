package postgres_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// F26: the first request after a restart of PostgreSQL succeeds.
func TestOpen_ClosedConnectionIsNotReused(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	store, err := postgres.Open(t.Context(), postgres.Only(credential.Secret(f.Database.Authserver)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	for range 2 {
		if _, err := store.SigningKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.Database.EndSessions(t)
	}
}
