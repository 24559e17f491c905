package bench

import (
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// TestCluster compares, behind the gateway, one process of each service with one Redis against two of each with a Redis
// Cluster of three.
func TestCluster(t *testing.T) {
	r := begin(t, "cluster")
	const one, two = "one of each, one Redis", "two of each, three Redis"
	cluster := harness.Servers(t, localstore.StartRedisMasters)
	loads := append(
		behindGateway(t, one, harness.Private(t, harness.Options{Durable: true}), nil),
		behindGateway(
			t,
			two,
			harness.Private(t, harness.Options{
				Durable:     true,
				Authservers: 2,
				Resources:   2,
				RedisURL:    cluster.URL,
				RedisDir:    cluster.Dir,
			}),
			cluster,
		)...)
	all, order := measureAll(t, inTurn(loads), []int{8, 32})
	r.line("Two installations, each with a Postgres of its own, take turns, %d rounds of %s each. Everything is asked "+
		"through the gateway, which runs in", *rounds, *each)
	r.line("the process of the generator. On as few processors as here the second cannot be faster: what is to be " +
		"seen is what it costs to be")
	r.line("divided. CPU is in microseconds a request: of all processes of the service, of Postgres, of all Redis " +
		"nodes.\n")
	r.table(all, order)
	r.line("\n| 32 connections | divided, of undivided |\n|---|---|")
	for _, what := range []string{refreshing, introspection, listConnector} {
		r.line("| %s | %.2f |", what, all.ratio(key{what, two, 32}, key{what, one, 32}))
	}
	r.write(t)
}

// behindGateway returns loads that go through the gateway, without those of personal access tokens.
func behindGateway(t *testing.T, name string, running *stack.Stack, cluster *localstore.RedisCluster) []load {
	t.Helper()
	stores := target{name: name, url: running.BaseURL, postgres: []int{running.Postgres.PID()}}
	if cluster == nil {
		stores.redis = []int{running.Redis.PID()}
	} else {
		for _, node := range cluster.Nodes {
			stores.redis = append(stores.redis, node.PID())
		}
	}
	of := func(services []*stack.Service) target {
		at := stores
		for _, service := range services {
			at.pids = append(at.pids, service.PID())
		}
		return at
	}
	return benchOf(t, running, of(running.Authservers), of(running.Resources)).signIn(t).usual(t)[:3]
}
