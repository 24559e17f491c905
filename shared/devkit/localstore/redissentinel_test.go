package localstore

import (
	"testing"
	"time"
)

func TestRedisSentinel_ReplacesKilledMaster(t *testing.T) {
	s, err := StartRedisSentinel(t.Context(), Options{Dir: tempDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	first := s.Master()
	first.Kill()
	end := time.Now().Add(readyWithin)
	for ; s.Master() == nil || s.Master() == first; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no new master within %s", readyWithin)
		}
	}
}
