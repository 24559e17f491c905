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
	wantSoon(t, "a master", func() bool { return s.redis.Master() != nil })
	master := s.redis.Master()
	master.Kill()
	wantSoon(t, "another master", func() bool { next := s.redis.Master(); return next != nil && next != master })
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

func alive(node *localstore.Redis) bool {
	_, err := localstore.AskRedis(node.URL, "PING")
	return err == nil
}

// waitForReplicas waits until all other live nodes follow the master.
func (s *sentinelStage) waitForReplicas(t *testing.T) {
	t.Helper()
	wantSoon(t, "every replica follows", func() bool {
		living, following := 0, 0
		for _, node := range s.redis.Nodes {
			if reply, err := localstore.AskRedis(node.URL, "INFO replication"); err == nil {
				living++
				following += strings.Count(reply, "master_link_status:up")
			}
		}
		return s.redis.Master() != nil && following == living-1
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
		for _, command := range []string{"CONFIG SET masterauth wrong", "CLIENT KILL TYPE master"} {
			_, err := localstore.AskRedis(node.URL, command)
			must(t, err)
		}
		wantSoon(t, "the replica has stopped following", func() bool {
			reply, err := localstore.AskRedis(node.URL, "INFO replication")
			return err == nil && strings.Contains(reply, "master_link_status:down")
		})
	}
}

// mayFollow reverts stopFollowing. Sentinel makes the servers write their configuration when it assigns another master,
// with the wrong password too.
func (s *sentinelStage) mayFollow(t *testing.T) {
	t.Helper()
	for _, node := range s.redis.Nodes {
		if !alive(node) {
			continue
		}
		for _, command := range []string{"CONFIG SET masterauth " + s.password(t), "CONFIG REWRITE"} {
			_, err := localstore.AskRedis(node.URL, command)
			must(t, err)
		}
	}
}

func (s *sentinelStage) password(t *testing.T) string {
	t.Helper()
	address, err := url.Parse(s.redis.Nodes[0].URL)
	must(t, err)
	password, _ := address.User.Password()
	return password
}

func wantSoon(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.True(t, what, condition)
}
