package torture

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A Redis Cluster loses a master and moves slots between masters while clients refresh and race. After some 503
// responses the cluster works again. A client with the current token is never refused, no token is redeemed twice, and
// nothing revoked works again (G1, G2, G7, G8).

type clusterStage struct {
	site
	cluster *localstore.RedisCluster
}

func newClusterStage(t *testing.T) *clusterStage {
	t.Helper()
	cluster := harness.Servers(t, localstore.StartRedisCluster)
	running := harness.Private(t,
		harness.Options{Authservers: 2, RedisURL: cluster.URL, RedisDir: cluster.Dir, StopsStores: true})
	return &clusterStage{newSite(t, running), cluster}
}

func TestRedisCluster_FailoverAndReshardingLoseNoGrant(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 20)
	harness.Record(t, "%d times each: a master killed, 2,000 slots moved, while clients refresh and race", times)
	s := newClusterStage(t)
	t.Run("fails over", func(t *testing.T) {
		for range times {
			s.keepsAll(t, func() { s.failOver(t) })
		}
	})
	t.Run("moves slots", func(t *testing.T) {
		for round := range times {
			s.keepsAll(t, func() { s.moveSlots(t, round) })
		}
	})
}

// keepsAll causes trouble while clients work, and checks that credentials made before are unchanged.
func (s *clusterStage) keepsAll(t *testing.T, trouble func()) {
	t.Helper()
	d := newBaseline(t, s.site, func() {})
	s.during(t, trouble)
	d.wantsKept(t)
}

func (s *clusterStage) failOver(t *testing.T) {
	t.Helper()
	s.waitForReplicas(t)
	master := s.masters(t)[0]
	master.Kill()
	s.waitForAll(t)
	must(t, master.Restart(context.WithoutCancel(t.Context())))
	s.waitForAll(t)
}

func (s *clusterStage) moveSlots(t *testing.T, round int) {
	t.Helper()
	masters := s.masters(t)
	from, to := masters[round%len(masters)], masters[(round+1)%len(masters)]
	must(t, s.cluster.Administer(context.WithoutCancel(t.Context()), "reshard", hostOf(t, from.URL),
		"--cluster-from", s.id(t, from), "--cluster-to", s.id(t, to), "--cluster-slots", "2000"))
	s.waitForAll(t)
}

// waitForAll waits until every running node reports that all slots are served.
func (s *clusterStage) waitForAll(t *testing.T) {
	t.Helper()
	await.True(t, "the cluster serves all slots", func() bool {
		well := 0
		for _, node := range s.cluster.Nodes {
			if reply, err := localstore.AskRedis(node.URL, "CLUSTER INFO"); err != nil ||
				strings.Contains(reply, "cluster_state:ok") {
				well++ // a stopped node does not count against it
			}
		}
		return well == len(s.cluster.Nodes) && len(s.masters(t)) == len(s.cluster.Nodes)/2
	})
}

// waitForReplicas waits until every master has a connected replica: only such a replica can replace it.
func (s *clusterStage) waitForReplicas(t *testing.T) {
	t.Helper()
	await.True(t, "a replica follows each master", func() bool {
		following := 0
		for _, node := range s.cluster.Nodes {
			if reply, err := localstore.AskRedis(node.URL, "INFO replication"); err == nil &&
				strings.Contains(reply, "master_link_status:up") {
				following++
			}
		}
		return following == len(s.cluster.Nodes)/2
	})
}

func (s *clusterStage) masters(t *testing.T) []*localstore.Redis {
	t.Helper()
	var masters []*localstore.Redis
	for _, node := range s.cluster.Nodes {
		reply, err := localstore.AskRedis(node.URL, "INFO replication")
		if err == nil && strings.Contains(reply, "role:master") {
			masters = append(masters, node)
		}
	}
	return masters
}

func (s *clusterStage) id(t *testing.T, node *localstore.Redis) string {
	t.Helper()
	reply, err := localstore.AskRedis(node.URL, "CLUSTER MYID")
	must(t, err)
	return reply
}

func hostOf(t *testing.T, text string) string {
	t.Helper()
	address, err := url.Parse(text)
	must(t, err)
	return address.Host
}
