package programmes

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

func TestSlots_WorkspaceAtItsBoundDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4, 2, 5*time.Second)
		greedy, other, third := uuid.New(), uuid.New(), uuid.New()
		enter := func(workspace uuid.UUID) func() {
			t.Helper()
			leave, err := s.enter(t.Context(), workspace)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first := enter(greedy)
		enter(greedy)
		var mu sync.Mutex
		var late []error
		for range 10 {
			go func() {
				_, err := s.enter(t.Context(), greedy)
				mu.Lock()
				defer mu.Unlock()
				late = append(late, err)
			}()
		}
		ended := func() []error {
			mu.Lock()
			defer mu.Unlock()
			return late
		}
		synctest.Wait()
		began := time.Now()
		enter(other)
		leave := enter(other)
		if time.Since(began) != 0 {
			t.Error("another workspace waits for the one at its bound")
		}

		got := make(chan struct{})
		go func() { enter(third); close(got) }()
		synctest.Wait()
		leave() // the ten that came before are over their own bound
		<-got
		if time.Since(began) != 0 || len(ended()) != 0 {
			t.Error("a free slot is not given to the workspace that is below its bound")
		}
		first()
		synctest.Wait()
		if all := ended(); len(all) != 1 || all[0] != nil {
			t.Errorf("%v", all)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		for _, err := range ended()[1:] {
			if refusal := apierr.Of(err); refusal.Kind != apierr.RateLimited || refusal.RetryAfter != 5 {
				t.Errorf("%v", err)
			}
		}
		if all := ended(); len(all) != 10 || s.imports.Len() != 3 {
			t.Errorf("%d of 10 ended, %d workspaces have imports", len(all), s.imports.Len())
		}
	})
}

func TestSlots_CancelledCallerTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 1, time.Hour)
		leave, _ := s.enter(t.Context(), uuid.New())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { _, err := s.enter(ctx, uuid.New()); ended <- err }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil {
			t.Error("a cancelled caller got a slot")
		}
		leave()
		leave() // a second call changes nothing
		if left := s.imports.Len(); left != 0 {
			t.Errorf("%d workspaces have imports", left)
		}
	})
}
