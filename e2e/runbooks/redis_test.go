package runbooks

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// Redis loses its data, then moves to a cluster, then behind Sentinels. Current tokens keep working, and ended grants
// stay ended.
func TestRedis_LosesDataAndMoves(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	current, old, revoked := connector.Connect(t, owner), connector.Connect(t, owner), connector.Connect(t, owner)
	wants := func(t *testing.T) {
		t.Helper()
		current = connector.WantsWorking(t, current)
		connector.WantsRevoked(t, revoked)
		after := connector.Refresh(t, old.RefreshToken).Tokens(t)
		connector.Refresh(t, old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		connector.WantsRevoked(t, after)
		old = connector.Connect(t, owner)
	}
	connector.Revoke(t, revoked.RefreshToken).Wants(t, http.StatusOK)

	o.running.Redis.Kill()
	must(t, o.running.Redis.Forget())
	must(t, o.running.Redis.Restart(ctx))
	o.run(t, "redis-lost.md", "look")
	wants(t)

	for name, address := range map[string]string{
		"a cluster": harness.Servers(t, localstore.StartRedisCluster).URL,
		"Sentinels": harness.Servers(t, localstore.StartRedisSentinel).URL,
	} {
		t.Run("moves to "+name, func(t *testing.T) {
			o.writeSecret(t, "redis-url.new", address)
			o.stopServices()
			o.run(t, "redis-move.md", "new-url")
			o.startServices(t)
			if output := o.run(t, "redis-move.md", "moved"); !strings.Contains(output, `"redis":"ok"`) {
				t.Errorf("moved: %s", output)
			}
			wants(t)
		})
	}
	o.run(t, "trouble.md", "what-grows")
	o.run(t, "trouble.md", "schema")
}
