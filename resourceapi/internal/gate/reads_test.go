package gate

import (
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
)

// At most three long pages of one workspace are read at once. Another workspace does not wait for them.
func TestReadInTurn_LimitsConcurrentReadsPerWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := NewBounds(1)
		greedy := Caller{WorkspaceID: uuid.New(), reads: bounds.reads}
		other := Caller{WorkspaceID: uuid.New(), reads: bounds.reads}
		reading, release := 0, make(chan struct{})
		for range 10 {
			go func() {
				err := greedy.ReadInTurn(t.Context(), func() error {
					reading++ // one goroutine at a time: each comes to its wait before the next
					<-release
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if reading != maxReads {
			t.Errorf("%d concurrent reads of one workspace, want %d", reading, maxReads)
		}
		read := false
		if err := other.ReadInTurn(t.Context(), func() error { read = true; return nil }); err != nil || !read {
			t.Errorf("read of another workspace did not run: %v", err)
		}
		for range 10 {
			release <- struct{}{}
			synctest.Wait()
		}
		if reading != 10 || bounds.reads.Len() != 0 {
			t.Errorf("%d of 10 pages were read, %d workspaces left in the table", reading, bounds.reads.Len())
		}
	})
}
