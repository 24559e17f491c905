package postgres_test

import (
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// While the primary of a URL with several hosts is down, a replica may lack the latest revocations. The read-only
// server is in place of the replica.
func TestStore_DoesNotReadFromReplica(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	for readOnly, want := range map[string]bool{"off": true, "on": false} {
		address, err := url.Parse(l.fixture.Database.Authserver)
		if err != nil {
			t.Fatal(err)
		}
		address.Host = "127.0.0.1:1," + address.Host
		query := address.Query()
		query.Set("default_transaction_read_only", readOnly)
		address.RawQuery = query.Encode()
		database := postgres.Only(credential.Secret(address.String()))
		store, err := postgres.Open(t.Context(), database, testkit.SilentStoreWait)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		_, err = store.Modules(t.Context(), l.grant.UserID)
		if got := err == nil; got != want {
			t.Errorf("read only %s: %v", readOnly, err)
		}
	}
}
