package torture

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestRedisCluster_FailoverAndReshardingLoseNoGrant(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 20)
	harness.Record(t, "%d times each: a master killed, 2,000 slots moved, while clients refresh and race", times)
	cluster := harness.Servers(t, localstore.StartRedisCluster)
	running := harness.Private(t,
		harness.Options{Authservers: 2, RedisURL: cluster.URL, RedisDir: cluster.Dir, StopsStores: true})
	s := &clusterStage{newSite(t, running), cluster}
	for name, trouble := range map[string]func(t *testing.T, round int){
		"fails over": s.failOver, "moves slots": s.moveSlots,
	} {
		t.Run(name, func(t *testing.T) {
			for round := range times {
				d := newBaseline(t, s.site, func() {})
				s.during(t, func() { trouble(t, round) })
				d.wantsKept(t)
			}
		})
	}
}

func (s *clusterStage) failOver(t *testing.T, _ int) {
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
		"--cluster-from", tell(t, from.URL, "CLUSTER MYID"), "--cluster-to", tell(t, to.URL, "CLUSTER MYID"),
		"--cluster-slots", "2000"))
	s.waitForAll(t)
}

// waitForAll waits until every running node reports that all slots are served.
func (s *clusterStage) waitForAll(t *testing.T) {
	t.Helper()
	await.True(t, "the cluster serves all slots", func() bool {
		for _, node := range s.cluster.Nodes {
			if alive(node) && !says(node, "CLUSTER INFO", "cluster_state:ok") {
				return false
			}
		}
		return len(s.masters(t)) == len(s.cluster.Nodes)/2
	})
}

// waitForReplicas waits until every master has a connected replica: only such a replica can replace it.
func (s *clusterStage) waitForReplicas(t *testing.T) {
	t.Helper()
	await.True(t, "a replica follows each master", func() bool {
		return len(saying(s.cluster.Nodes, "INFO replication", "master_link_status:up")) == len(s.cluster.Nodes)/2
	})
}

func (s *clusterStage) masters(t *testing.T) []*localstore.Redis {
	t.Helper()
	return saying(s.cluster.Nodes, "INFO replication", "role:master")
}

// says reports whether a server's reply to a command contains a text.
func says(node *localstore.Redis, command, text string) bool {
	reply, err := localstore.AskRedis(node.URL, command)
	return err == nil && strings.Contains(reply, text)
}

func saying(nodes []*localstore.Redis, command, text string) []*localstore.Redis {
	other := func(node *localstore.Redis) bool { return !says(node, command, text) }
	return slices.DeleteFunc(slices.Clone(nodes), other)
}

func alive(node *localstore.Redis) bool { return says(node, "PING", "PONG") }

// tell sends commands to a server of Redis and returns the last reply.
func tell(t *testing.T, redisURL string, commands ...string) (reply string) {
	t.Helper()
	for _, command := range commands {
		var err error
		reply, err = localstore.AskRedis(redisURL, command)
		must(t, err)
	}
	return reply
}

func hostOf(t *testing.T, text string) string {
	t.Helper()
	address, err := url.Parse(text)
	must(t, err)
	return address.Host
}

// A Redis with Sentinels loses its master, and the product finds the new one without intervention. If the new master
// had stopped replicating and has only old data, no request may wrongly succeed (G1, G2, G7): for the grant store this
// is a restored older copy.

type sentinelStage struct {
	site
	redis *localstore.RedisSentinel
}

func TestRedisSentinel_FailoverLosesNoGrant(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 20)
	harness.Record(t, "%d times each: a master killed while clients refresh and race, a master killed whose replicas "+
		"had stopped following", times)
	redis := harness.Servers(t, localstore.StartRedisSentinel)
	running := harness.Private(t,
		harness.Options{Authservers: 2, RedisURL: redis.URL, RedisDir: redis.Dir, StopsStores: true})
	s := &sentinelStage{newSite(t, running), redis}
	for range times {
		s.restartTheDead(t)
		t.Run("while clients refresh", func(t *testing.T) {
			s.waitForReplicas(t)
			s.during(t, func() { s.failOver(t, func() {}) })
		})
		t.Run("to a replica that lagged", func(t *testing.T) {
			s.waitForReplicas(t)
			d := newBaseline(t, s.site, func() { s.stopFollowing(t) })
			s.failOver(t, func() { s.mayFollow(t) })
			d.wantsKept(t)
		})
	}
}

// failOver kills the master, which stays dead. It calls afterwards when there is a new master, and returns when the
// product works with it.
func (s *sentinelStage) failOver(t *testing.T, afterwards func()) {
	t.Helper()
	await.True(t, "a master", func() bool { return s.redis.Master() != nil })
	master := s.redis.Master()
	master.Kill()
	await.True(t, "another master", func() bool { next := s.redis.Master(); return next != nil && next != master })
	afterwards()
	s.wantsWorkingSoon(t, s.reconnect(t))
}

func (s *sentinelStage) restartTheDead(t *testing.T) {
	t.Helper()
	for _, node := range s.redis.Nodes {
		if !alive(node) {
			must(t, node.Restart(context.WithoutCancel(t.Context())))
		}
	}
}

// waitForReplicas waits until all other live nodes follow the master.
func (s *sentinelStage) waitForReplicas(t *testing.T) {
	t.Helper()
	await.True(t, "every replica follows", func() bool {
		living := saying(s.redis.Nodes, "PING", "PONG")
		following := saying(living, "INFO replication", "master_link_status:up")
		return s.redis.Master() != nil && len(following) == len(living)-1
	})
}

// stopFollowing stops every replica from replicating: it can no longer log in to its master.
func (s *sentinelStage) stopFollowing(t *testing.T) {
	t.Helper()
	master := s.redis.Master()
	for _, node := range s.redis.Nodes {
		if node == master || !alive(node) {
			continue
		}
		tell(t, node.URL, "CONFIG SET masterauth wrong", "CLIENT KILL TYPE master")
		await.True(t, "the replica has stopped following", func() bool {
			return says(node, "INFO replication", "master_link_status:down")
		})
	}
}

// mayFollow reverts stopFollowing. Sentinel makes the servers write their configuration when it assigns another master,
// with the wrong password too.
func (s *sentinelStage) mayFollow(t *testing.T) {
	t.Helper()
	address, err := url.Parse(s.redis.Nodes[0].URL)
	must(t, err)
	password, _ := address.User.Password()
	for _, node := range saying(s.redis.Nodes, "PING", "PONG") {
		tell(t, node.URL, "CONFIG SET masterauth "+password, "CONFIG REWRITE")
	}
}

const (
	honestClients = 6
	racesOn       = 2
)

// during runs clients that refresh or race while a store is in trouble, and then checks their results.
func (s site) during(t *testing.T, trouble func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait() // even if trouble fails: the clients report to this test
	defer stop()
	var refreshed, unavailable atomic.Int64
	for i := range honestClients + racesOn {
		tokens := s.connector.Connect(t, s.owner)
		clients.Go(func() {
			for ; ctx.Err() == nil; unhurried() {
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
					time.Sleep(retryAfter)
				default:
					t.Errorf("a current token was refused:\n%s", answer)
					return
				}
			}
			if i < honestClients {
				s.wantsWorkingSoon(t, tokens)
			}
		})
	}
	trouble()
	stop()
	clients.Wait()
	t.Logf("%d refreshed, %d unavailable", refreshed.Load(), unavailable.Load())
	if refreshed.Load() == 0 {
		t.Error("no client refreshed")
	}
}

// wantsWorkingSoon checks that the grant works. At first it allows 503 responses.
func (s site) wantsWorkingSoon(t *testing.T, tokens harness.Tokens) {
	const inARow = 4 // so that each process has responded
	end := time.Now().Add(atMost(5 * time.Second))
	for good := 0; good < inARow; {
		answer := s.connector.Refresh(t, tokens.RefreshToken)
		if answer.Status == http.StatusServiceUnavailable && time.Now().Before(end) {
			good = 0
			time.Sleep(retryAfter)
			continue
		}
		tokens = answer.Tokens(t)
		good++
	}
	s.connector.WantsWorking(t, tokens)
}

// race presents one token concurrently: at most one request gets the next token.
func (s site) race(t *testing.T, tokens harness.Tokens) {
	winners := 0
	refresh := func(int) harness.Answer { return s.connector.Refresh(t, tokens.RefreshToken) }
	for _, answer := range harness.Concurrently(4, refresh) {
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

// reconnect makes a new connection as soon as the product allows it.
func (s site) reconnect(t *testing.T) harness.Tokens {
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		attempt := s.connector.Begin()
		code := tryCode(t, attempt, s.owner)
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
