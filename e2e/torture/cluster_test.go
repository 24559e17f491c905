package torture

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/localstore"
)

// A Redis Cluster loses a master, and moves slots from one to another, while clients refresh and race: some 503, and then it is
// normal again. Nobody who has the current token is refused, and no token is taken twice (G1, G2, G8).

const (
	honestClients = 6
	racesOn       = 2
)

type clusterStage struct {
	*harness.Product
	cluster   *localstore.RedisCluster
	connector harness.Connector
	head      *harness.Person
}

func newClusterStage(t *testing.T) *clusterStage {
	t.Helper()
	cluster := harness.Cluster(t)
	running := harness.Private(t, harness.Options{Authservers: 2, RedisURL: cluster.URL})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	return &clusterStage{p, cluster, office.Connector(t, harness.ReadProgrammes), p.Person(t, office.Head)}
}

func TestRedisClusterFailsOverAndMovesSlots(t *testing.T) {
	times := rounds(1, 20)
	note(t, "%d times each: a master killed, 2,000 slots moved, while clients refresh and race", times)
	s := newClusterStage(t)
	t.Run("fails over", func(t *testing.T) {
		for range times {
			s.during(t, func() { s.failOver(t) })
		}
	})
	t.Run("moves slots", func(t *testing.T) {
		for round := range times {
			s.during(t, func() { s.moveSlots(t, round) })
		}
	})
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

// during lets clients work while trouble is made, and judges afterwards.
func (s *clusterStage) during(t *testing.T, trouble func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait() // also where the trouble fails: they speak to this test
	defer stop()
	var refreshed, unavailable atomic.Int64
	for i := range honestClients + racesOn {
		tokens := s.connector.Connect(t, s.head)
		clients.Go(func() {
			for ctx.Err() == nil {
				if i >= honestClients {
					s.race(t, tokens)
					tokens = s.reconnect(t)
					continue
				}
				answer := s.connector.Refresh(t, tokens.RefreshToken)
				switch answer.Status {
				case http.StatusOK:
					tokens = answer.Tokens(t)
					refreshed.Add(1)
				case http.StatusServiceUnavailable:
					unavailable.Add(1)
					time.Sleep(asTold)
				default:
					t.Errorf("a current token was refused:\n%s", answer)
					return
				}
			}
			if i < honestClients {
				s.connector.WantsAlive(t, tokens)
			}
		})
	}
	trouble()
	stop()
	clients.Wait()
	t.Logf("%d refreshed, %d unavailable", refreshed.Load(), unavailable.Load())
	if refreshed.Load() == 0 {
		t.Error("nobody refreshed anything")
	}
}

// race presents one token from many sides at once: at most one gets the next.
func (s *clusterStage) race(t *testing.T, tokens harness.Tokens) {
	winners := 0
	for _, answer := range harness.Together(4, func(int) harness.Answer { return s.connector.Refresh(t, tokens.RefreshToken) }) {
		switch answer.Status {
		case http.StatusOK:
			winners++
		case http.StatusServiceUnavailable:
		default:
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
	}
	if winners > 1 {
		t.Errorf("%d racers won", winners)
	}
}

// reconnect makes a new connection as soon as the cluster lets it.
func (s *clusterStage) reconnect(t *testing.T) harness.Tokens {
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		attempt := s.connector.Begin()
		code := attempt.TryCode(t, s.head)
		if code == "" {
			continue
		}
		if answer := attempt.Post(t, attempt.CodeForm(code)); answer.Status == http.StatusOK {
			return answer.Tokens(t)
		}
	}
	t.Errorf("no connection within %s", calmWithin)
	return harness.Tokens{}
}

// waitForAll waits until every node that runs finds all slots served.
func (s *clusterStage) waitForAll(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(calmWithin); ; time.Sleep(50 * time.Millisecond) {
		well := 0
		for _, node := range s.cluster.Nodes {
			if said, err := tellRedis(node.URL, "CLUSTER INFO"); err != nil || strings.Contains(said, "cluster_state:ok") {
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
			if said, err := tellRedis(node.URL, "INFO replication"); err == nil && strings.Contains(said, "master_link_status:up") {
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
