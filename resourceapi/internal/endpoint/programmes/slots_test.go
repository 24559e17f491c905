package programmes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// package inflight tests the order of those that wait.
func TestSlots_AreBoundedForWorkspaceAndInTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3, 2, 5*time.Second)
		enter := func(workspace uuid.UUID, refused bool) (leave func()) {
			t.Helper()
			began := time.Now()
			leave, err := s.enter(t.Context(), workspace)
			if (err != nil) != refused || refused != (time.Since(began) == 5*time.Second) {
				t.Errorf("after %s: %v, want refused %t", time.Since(began), err, refused)
			}
			if refusal := apierr.Of(err); refused && (refusal.Kind != apierr.RateLimited || refusal.RetryAfter != 5) {
				t.Errorf("%+v", refusal)
			}
			return leave
		}
		greedy, other := uuid.New(), uuid.New()
		enter(greedy, false)
		leave := enter(greedy, false)
		enter(greedy, true)
		enter(other, false) // while the other workspace is at its bound
		enter(uuid.New(), true)
		leave()
		leave() // a second call changes nothing
		enter(other, false)
		enter(uuid.New(), true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.enter(ctx, uuid.New()); err == nil {
			t.Error("a cancelled caller got a slot")
		}
		if n := s.imports.Len(); n != 2 {
			t.Errorf("%d workspaces have imports", n)
		}
	})
}
