package settings

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// At most 4 pages of logs are read at once. Another read waits up to 3 seconds for its turn.
func TestReadLog_BoundsReadsOfAllUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Settings{turns: newTurns()}
		var reads sync.WaitGroup
		release := make(chan struct{})
		for range turnsOfReads {
			reads.Go(func() {
				if err := h.ReadLog(t.Context(), func() error { <-release; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		err := h.ReadLog(t.Context(), func() error { t.Error("read"); return nil })
		if took := time.Since(began); !errors.Is(err, errBusy) || took != turnWait {
			t.Errorf("%v after %s", err, took)
		}
		reads.Go(func() {
			if err := h.ReadLog(t.Context(), func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		reads.Wait()
	})
}
