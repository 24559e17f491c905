package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Without ALMONER_STORE_WAIT, a request gets its 503 before the server closes its connection. With it, requests and
// steps of grants wait longer, for a connection and for a lock.
func TestSteps_WaitAsConfigured(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	for _, c := range []struct {
		wait, transaction, operation time.Duration
		lock                         string
	}{
		{0, 5 * time.Second, time.Second, "400ms"},
		{testkit.SilentStoreWait, 5 * time.Second, 3 * time.Second, "1200ms"},
		{testkit.StoreWait, 20 * time.Second, 20 * time.Second, "8s"},
	} {
		transaction, operation, lock, err := l.open(c.wait).Limits(t.Context())
		if transaction != c.transaction || operation != c.operation || lock != c.lock || err != nil {
			t.Errorf("wait %s: got %s, %s, %s, %v, want %+v", c.wait, transaction, operation, lock, err, c)
		}
		if transaction >= postgres.CommandTime {
			t.Errorf("wait %s: a request waits %s, as long as a command", c.wait, transaction)
		}
	}
}

func TestSteps_WaitLongerWithSetting(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(1500*time.Millisecond, release) // later than a second, the limit without the setting
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 2))

	unlock, unlocked := l.hold(l.grant.ID), make(chan struct{})
	time.AfterFunc(800*time.Millisecond, func() { // later than 400 ms
		defer close(unlocked)
		unlock()
	})
	l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(3)))
	<-unlocked
}

// An operator's command waits longer for a connection than requests do.
func TestTransactions_RequestsEndBeforeCommands(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]func() error{
		"changes": func() error {
			event := audit.Event{Actor: "user:" + l.grant.UserID.String(), Authorization: operator}
			return l.SetName(t.Context(), l.grant.UserID, "Ada Okafor", event)
		},
		"reads": func() error {
			_, err := l.ConnectorPolicy(t.Context(), l.grant.WorkspaceID)
			return err
		},
	}
	const limit = 20 * time.Millisecond
	l.SetLimit(limit)
	for what, request := range operations {
		began := time.Now()
		if err := request(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a request that %s: %v", what, err)
		}
		if took := time.Since(began); took >= postgres.CommandTime {
			t.Errorf("a request that %s waited as long as a command: %s", what, took)
		}
	}
	l.ServeCommands()
	var group sync.WaitGroup
	time.AfterFunc(5*limit, release)
	for what, command := range operations {
		group.Go(func() {
			if err := command(); err != nil {
				t.Errorf("a command that %s: %v", what, err)
			}
		})
	}
	group.Wait()
}
