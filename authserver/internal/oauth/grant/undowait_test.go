package grant_test

import (
	"context"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// slowUndoStore undoes steps only after release. It closes began when it is first called.
type slowUndoStore struct {
	grant.GrantStore
	began, release chan struct{}
}

func (s *slowUndoStore) CancelTries(ctx context.Context, step grant.Step, nonces []string) error {
	close(s.began)
	<-s.release
	return s.GrantStore.CancelTries(ctx, step, nonces)
}

// A service that waits for its stores makes requests for a grant wait while a step of it is undone.
func TestService_WaitsForUndo(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	grants := &slowUndoStore{b.store, make(chan struct{}), make(chan struct{})}
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	b.grants = b.service(grants)
	g, refresh := b.active()
	lost.on.Store(true)
	first := make(chan error)
	go func() {
		_, err := b.rotate(refresh)
		first <- err
	}()
	<-grants.began
	lost.on.Store(false)
	time.AfterFunc(200*time.Millisecond, func() { close(grants.release) })
	if _, err := b.rotate(refresh); err != nil {
		t.Errorf("a request during the undo: %v", err)
	}
	unavailable(t, "the request whose step was undone", <-first)
	b.wantActive(g.ID)
}
