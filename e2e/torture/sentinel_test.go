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

// A Redis that Sentinels watch over loses its master. The product finds the new one by itself; and if that one had
// stopped following, so that it knows the past alone, nobody gets a wrong yes (G1, G2, G7): to the grant store it is an
// older copy put back.

type sentinelStage struct {
	crowd
	redis *localstore.RedisSentinel
}

func TestRedisSentinelFailsOver(t *testing.T) {
	besideOthers(t)
	times := harness.Rounds(1, 20)
	harness.Note(
		t,
		"%d times each: a master killed while clients refresh and race, a master killed whose replicas had stopped "+
			"following",
		times,
	)
	redis := harness.Sentinel(t)
	running := harness.Private(t, harness.Options{Authservers: 2, RedisURL: redis.URL, RedisDir: redis.Dir})
	s := &sentinelStage{newCrowd(t, harness.Enter(t, running, &met)), redis}
	app := s.Confidential(t, "", harness.ReadProgrammes)
	for range times {
		s.restartTheDead(t)
		t.Run("while clients refresh", func(t *testing.T) {
			s.waitForReplicas(t)
			s.during(t, func() { s.failOver(t, func() {}) })
		})
		t.Run("to a replica that lagged", func(t *testing.T) {
			s.waitForReplicas(t)
			d := newDeposit(t, s.Product, s.Office, s.connector, app, func() { s.stopFollowing(t) })
			s.failOver(t, func() { s.mayFollow(t) })
			d.wantsKept(t)
		})
	}
}

// failOver kills the master, which stays dead, and returns when the product works with another one, before which
// afterwards was called.
func (s *sentinelStage) failOver(t *testing.T, afterwards func()) {
	t.Helper()
	wantSoon(t, "a master", func() bool { return s.redis.Master() != nil })
	master := s.redis.Master()
	master.Kill()
	wantSoon(t, "another master", func() bool { next := s.redis.Master(); return next != nil && next != master })
	afterwards()
	s.wantsAliveSoon(t, s.reconnect(t))
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
	_, err := tellRedis(node.URL, "PING")
	return err == nil
}

// waitForReplicas waits until all others that live follow the master.
func (s *sentinelStage) waitForReplicas(t *testing.T) {
	t.Helper()
	wantSoon(t, "every replica follows", func() bool {
		living, following := 0, 0
		for _, node := range s.redis.Nodes {
			if said, err := tellRedis(node.URL, "INFO replication"); err == nil {
				living++
				following += strings.Count(said, "master_link_status:up")
			}
		}
		return s.redis.Master() != nil && following == living-1
	})
}

// stopFollowing makes every replica keep what it has: it can no longer log in at its master.
func (s *sentinelStage) stopFollowing(t *testing.T) {
	t.Helper()
	master := s.redis.Master()
	for _, node := range s.redis.Nodes {
		if node == master || !alive(node) {
			continue
		}
		for _, command := range []string{"CONFIG SET masterauth wrong", "CLIENT KILL TYPE master"} {
			_, err := tellRedis(node.URL, command)
			must(t, err)
		}
		wantSoon(t, "the replica has stopped following", func() bool {
			said, err := tellRedis(node.URL, "INFO replication")
			return err == nil && strings.Contains(said, "master_link_status:down")
		})
	}
}

// mayFollow is the end of stopFollowing. Sentinel lets the servers write down what they have when it turns them to
// another master, the wrong password too.
func (s *sentinelStage) mayFollow(t *testing.T) {
	t.Helper()
	for _, node := range s.redis.Nodes {
		if !alive(node) {
			continue
		}
		for _, command := range []string{"CONFIG SET masterauth " + s.password(t), "CONFIG REWRITE"} {
			_, err := tellRedis(node.URL, command)
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

func wantSoon(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(calmWithin); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", calmWithin, what)
		}
	}
}
