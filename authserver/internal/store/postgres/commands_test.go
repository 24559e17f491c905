package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// A request gets its 503 before the server closes its connection. An operator's command waits longer.
func TestTransactions_RequestsEndBeforeCommands(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := func() error {
		event := audit.Event{Actor: "user:" + l.grant.UserID.String()}
		return l.SetName(t.Context(), l.grant.UserID, "Ada Okafor", event)
	}
	began := time.Now()
	if err := set(); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 15*time.Second {
		t.Errorf("a request: %v after %s", err, time.Since(began))
	}
	l.ServeCommands()
	time.AfterFunc(7*time.Second, release)
	if err := set(); err != nil {
		t.Errorf("a command: %v", err)
	}
}
