package torture

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A Redis Cluster loses a master, and moves slots from one to another, while clients refresh and race: some 503, and
// then it is normal again. Nobody who has the current token is refused, no token is taken twice, and nothing dead comes
// back (G1, G2, G7, G8).

type clusterStage struct {
	crowd
	app     harness.ConfidentialApp
	cluster *localstore.RedisCluster
}

func newClusterStage(t *testing.T) *clusterStage {
	t.Helper()
	cluster := harness.Cluster(t)
	running := harness.Private(t, harness.Options{Authservers: 2, RedisURL: cluster.URL, RedisDir: cluster.Dir})
	p := harness.Enter(t, running, &met)
	c := newCrowd(t, p)
	return &clusterStage{c, c.Confidential(t, "", harness.ReadProgrammes), cluster}
}

func TestRedisClusterFailsOverAndMovesSlots(t *testing.T) {
	besideOthers(t)
	times := harness.Rounds(1, 20)
	harness.Note(t, "%d times each: a master killed, 2,000 slots moved, while clients refresh and race", times)
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

// keepsAll makes trouble while clients work. What stood ready before is as it was.
func (s *clusterStage) keepsAll(t *testing.T, trouble func()) {
	t.Helper()
	d := newDeposit(t, s.Product, s.Office, s.connector, s.app, func() {})
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

// waitForAll waits until every node that runs finds all slots served.
func (s *clusterStage) waitForAll(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(calmWithin); ; time.Sleep(50 * time.Millisecond) {
		well := 0
		for _, node := range s.cluster.Nodes {
			if said, err := tellRedis(node.URL, "CLUSTER INFO"); err != nil ||
				strings.Contains(said, "cluster_state:ok") {
				well++ // one that does not run is not asked
			}
		}
		if well == len(s.cluster.Nodes) && len(s.masters(t)) == len(s.cluster.Nodes)/2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the cluster does not serve all slots within %s", calmWithin)
		}
	}
}

// waitForReplicas waits until every master has a replica that follows it: one that never did cannot take its place.
func (s *clusterStage) waitForReplicas(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(calmWithin); ; time.Sleep(50 * time.Millisecond) {
		following := 0
		for _, node := range s.cluster.Nodes {
			if said, err := tellRedis(node.URL, "INFO replication"); err == nil &&
				strings.Contains(said, "master_link_status:up") {
				following++
			}
		}
		if following == len(s.cluster.Nodes)/2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d replicas follow their masters within %s", following, calmWithin)
		}
	}
}

func (s *clusterStage) masters(t *testing.T) []*localstore.Redis {
	t.Helper()
	var masters []*localstore.Redis
	for _, node := range s.cluster.Nodes {
		if said, err := tellRedis(node.URL, "INFO replication"); err == nil && strings.Contains(said, "role:master") {
			masters = append(masters, node)
		}
	}
	return masters
}

func (s *clusterStage) id(t *testing.T, node *localstore.Redis) string {
	t.Helper()
	said, err := tellRedis(node.URL, "CLUSTER MYID")
	must(t, err)
	return strings.Split(said, "\r\n")[1] // behind its length
}

func hostOf(t *testing.T, text string) string {
	t.Helper()
	address, err := url.Parse(text)
	must(t, err)
	return address.Host
}
