package postgres_test

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// With ALMONER_STORE_WAIT, steps of grants wait longer for a connection, and for a lock, than without it: a second, and
// 400 ms.
func TestSteps_WaitAsConfigured(t *testing.T) {
	t.Parallel()
	l := newStoreTestWithWait(t, testkit.StoreWait)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(1500*time.Millisecond, release)
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 2))

	unlock, unlocked := l.hold(l.grant.ID), make(chan struct{})
	time.AfterFunc(800*time.Millisecond, func() {
		defer close(unlocked)
		unlock()
	})
	l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(3)))
	<-unlocked
}
