package bench

import (
	"slices"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// TestCitus compares one Postgres with a Citus cluster of a coordinator and two workers. Two processes of authserver
// use the cluster: the refreshes of one pass through the coordinator, and those of the other go to the workers.
func TestCitus(t *testing.T) {
	r := begin(t, "citus")
	const connections = 16
	const one, coordinator, workers = "one Postgres", "three nodes", "three nodes, refreshes at the workers"
	single := harness.Private(t, harness.Options{Durable: true})
	cluster := harness.StartCitus(t, 2, true)
	several := harness.Private(t, harness.Options{Durable: true, Authservers: 2})
	harness.RefreshAtWorkers(t, cluster, several.DatabaseURL, several.Authservers[1])
	var nodes []int
	for _, node := range cluster.Nodes {
		nodes = append(nodes, node.PID())
	}
	onOne := []int{single.Postgres.PID()}
	loads := slices.Concat(direct(t, one, single, single.Authservers[0], onOne),
		direct(t, coordinator, several, several.Authservers[0], nodes),
		direct(t, workers, several, several.Authservers[1], nodes)[:1])
	// Code exchange is not measured: its concurrent consents wait for locks of copied tables until they time out
	// (deploy/citus/README.md).
	loads = slices.DeleteFunc(loads, func(l load) bool { return l.what == codeExchange })
	all, order := measureAll(t, inTurn(loads), []int{connections})
	r.line("One Postgres, and Citus with a coordinator and two workers, on the same processors take turns, "+
		"%d rounds of %s each.", *rounds, *each)
	r.line("CPU is in microseconds a request: of the serving process, of all nodes of Postgres, of Redis.\n")
	r.table(all, order)
	r.line("\nPostgres's processor time by node, in microseconds a request:\n")
	r.line("| %d connections | coordinator | first worker | second worker |\n|---|---|---|---|", connections)
	for _, of := range loads {
		if len(of.at.postgres) > 1 {
			byNode(t, r, of, connections)
		}
	}
	r.write(t)
}

// direct returns loads that go directly to a process of each service. The first one refreshes.
func direct(t *testing.T, name string, running *stack.Stack, account *stack.Service, postgres []int) []load {
	t.Helper()
	at := func(service *stack.Service) target {
		return target{name, service.URL, []int{service.PID()}, postgres, []int{running.Redis.PID()}}
	}
	b := benchOf(t, running, at(account), at(running.Resourceapi)).signIn(t)
	return append(b.usual(t), load{what: codeExchange, at: b.account, worker: b.exchange, before: b.fill})
}

// byNode runs a load once more and writes a row with the processor time of each node.
func byNode(t *testing.T, r *report, l load, connections int) {
	t.Helper()
	nodes := l.at.postgres
	l.at.pids, l.at.postgres, l.at.redis = nodes[:1], nodes[1:2], nodes[2:]
	s := l.run(t, connections, 2**each)
	r.line("| %s, %s | %.0f | %.0f | %.0f |", l.what, l.at.name, s.cost(0), s.cost(1), s.cost(2))
}
