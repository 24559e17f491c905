package grant_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// slowUndoStore undoes steps only after release. It calls begin first.
type slowUndoStore struct {
	grant.GrantStore
	begin   func()
	release chan struct{}
}

func (s *slowUndoStore) CancelTries(ctx context.Context, step grant.Step, nonces []string) error {
	s.begin()
	<-s.release
	return s.GrantStore.CancelTries(ctx, step, nonces)
}

// A service that waits for its stores makes requests for a grant wait while a step of it is undone.
func TestService_WaitsForUndo(t *testing.T) {
	b := newTestEnv(t)
	began := make(chan struct{})
	grants := &slowUndoStore{b.store, sync.OnceFunc(func() { close(began) }), make(chan struct{})}
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	b.grants = b.service(grants)
	g, refresh := b.active()
	lost.on.Store(true)
	b.grants.SetRedisTime(sentWithin)
	first := make(chan error, 1)
	go func() {
		_, err := b.rotate(refresh)
		first <- err
	}()
	select {
	case <-began:
	case err := <-first:
		t.Fatalf("the request whose step is undone: %v", err)
	}
	lost.on.Store(false)
	b.grants.SetRedisTime(testkit.SilentStoreWait)
	time.AfterFunc(200*time.Millisecond, func() { close(grants.release) })
	if _, err := b.rotate(refresh); err != nil {
		t.Errorf("a request during the undo: %v", err)
	}
	unavailable(t, "the request whose step was undone", <-first)
	b.wantActive(g.ID)
}

// A step in Postgres may take longer than the whole decision. Redis undoes it nevertheless, so that the client's retry
// is no replay for another process.
func TestG10_StepThatOutlastsDecisionIsUndone(t *testing.T) {
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	grants.around = func(ctx context.Context, _ grant.Step, _ stepFunc) (grant.UpdateResult, error) {
		<-ctx.Done()
		return grant.Refused, store.ErrUnavailable
	}
	slow := b.over(grants)
	slow.grants.SetLimit(time.Second)
	g, refresh := b.active()
	grants.stalled.Store(true) // so that the step cannot be undone in Postgres
	defer grants.stalled.Store(false)
	b.unavailable("refresh")(slow.rotate(refresh))
	b.anotherProcess().mustRotate(refresh)
	b.wantActive(g.ID)
}
