package postgres

import (
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// While the primary of a URL with several hosts is down, a replica may lack the latest revocations. The read-only
// server is in place of the replica.
func TestStore_DoesNotReadFromReplica(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for readOnly, want := range map[string]bool{"off": true, "on": false} {
		address := orFail(url.Parse(w.Database.Resourceapi))(t)
		address.Host = "127.0.0.1:1," + address.Host
		query := address.Query()
		query.Set("default_transaction_read_only", readOnly)
		address.RawQuery = query.Encode()
		url := credential.Fixed(credential.Secret(address.String()))
		store := orFail(Open(t.Context(), url, Limits{Connections: 4, Wait: testkit.SilentStoreWait}))(t)
		t.Cleanup(store.Close)
		_, err := store.Engage(nil).WorkspaceExists(t.Context(), w.Workspace())
		if got := err == nil; got != want {
			t.Errorf("read only %s: %v", readOnly, err)
		}
	}
}
