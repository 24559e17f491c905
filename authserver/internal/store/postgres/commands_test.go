package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A request gets its 503 before the server closes its connection. An operator's command waits longer.
func TestTransactions_RequestsEndBeforeCommands(t *testing.T) {
	t.Parallel()
	l := newStoreTestWithWait(t, testkit.SilentStoreWait)
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := func() error {
		event := audit.Event{Actor: "user:" + l.grant.UserID.String(), Authorization: operator}
		return l.SetName(t.Context(), l.grant.UserID, "Ada Okafor", event)
	}
	read := func() error {
		_, err := l.ConnectorPolicy(t.Context(), l.grant.WorkspaceID)
		return err
	}
	if err := read(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a request that reads: %v", err)
	}
	began := time.Now()
	if err := set(); !errors.Is(err, store.ErrUnavailable) || time.Since(began) >= postgres.CommandTime {
		t.Errorf("a request: %v after %s", err, time.Since(began))
	}
	l.ServeCommands()
	var group sync.WaitGroup
	time.AfterFunc(7*time.Second, release)
	for what, command := range map[string]func() error{"changes": set, "reads": read} {
		group.Go(func() {
			if err := command(); err != nil {
				t.Errorf("a command that %s: %v", what, err)
			}
		})
	}
	group.Wait()
}
