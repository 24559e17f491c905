package localstore

import (
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

func TestRedisSentinel_ReplacesKilledMaster(t *testing.T) {
	t.Parallel()
	s, err := StartRedisSentinel(t.Context(), Options{Dir: tempDir(t)})
	must(t, err)
	t.Cleanup(s.Stop)
	first := s.Master()
	first.Kill()
	await.True(t, "there is a new master", func() bool {
		master := s.Master()
		return master != nil && master != first
	})
}
