package postgres_test

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// With ALMONER_STORE_WAIT, steps of grants wait that long for a connection, and two fifths of it for a lock.
func TestSteps_WaitAsConfigured(t *testing.T) {
	t.Parallel()
	l := newStoreTestWithWait(t, testkit.SilentStoreWait)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(testkit.SilentStoreWait*2/3, release) // more than a second
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 2))

	unlock, unlocked := l.hold(l.grant.ID), make(chan struct{})
	time.AfterFunc(testkit.SilentStoreWait*3/10, func() { // more than 400 ms
		defer close(unlocked)
		unlock()
	})
	l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(3)))
	<-unlocked
}
