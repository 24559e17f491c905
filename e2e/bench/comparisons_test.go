package bench

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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
	options := harness.Options{
		Durable: true, Authservers: 2, Resources: 2, RedisURL: cluster.URL, RedisDir: cluster.Dir,
	}
	loads := append(behindGateway(t, one, harness.Private(t, harness.Options{Durable: true}), nil),
		behindGateway(t, two, harness.Private(t, options), cluster)...)
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
	return append(b.usual(t), load{what: codeExchange, at: b.account, worker: b.exchange(), before: b.fill})
}

// byNode runs a load once more and writes a row with the processor time of each node.
func byNode(t *testing.T, r *report, l load, connections int) {
	t.Helper()
	nodes := l.at.postgres
	l.at.pids, l.at.postgres, l.at.redis = nodes[:1], nodes[1:2], nodes[2:]
	s := l.run(t, connections, 2**each)
	r.line("| %s, %s | %.0f | %.0f | %.0f |", l.what, l.at.name, s.cost(0), s.cost(1), s.cost(2))
}

// TestLanded compares the previous release with the current code. Their rounds alternate, so that other load on the
// machine affects both equally.
func TestLanded(t *testing.T) {
	r := begin(t, "landed")
	const before, after = "landed", "now"
	commit := harness.PreviousRelease()
	earlier := harness.Options{Durable: true, Fresh: true, Binaries: harness.Earlier(t, commit)}
	var loads []load
	for name, options := range map[string]harness.Options{before: earlier, after: {Durable: true}} {
		running := harness.Private(t, options)
		loads = append(loads, direct(t, name, running, running.Authservers[0], []int{running.Postgres.PID()})...)
	}
	all, order := measureAll(t, inTurn(loads), []int{1, 32})
	r.line("Rounds of commit %.8s and of the current code alternate, %d rounds of %s each. Ratios are medians of the "+
		"rounds' ratios.", commit, *rounds, *each)
	r.line("CPU is in microseconds a request: of the serving process, of its Postgres, of its Redis.\n")
	r.table(all, order)
	r.line("\n| connections | what | requests/s, now of landed |\n|---|---|---|")
	for _, k := range order {
		if k.of == after {
			r.line("| %d | %s | %.2f |", k.connections, k.what, all.ratio(k, key{k.what, before, k.connections}))
		}
	}
	r.write(t)
}

// withoutUsage removes the counting of usage and the networks of credentials. The last use is still recorded.
func withoutUsage() []harness.Fault {
	return []harness.Fault{
		{
			File: "shared/contract/usage/counter.go",
			Old:  "	if tally.Presented == nil && !identified(tally) {\n",
			New:  "	if c != nil || !identified(tally) {\n",
		},
		{File: "shared/contract/standing/lastuse.go", Old: "	u.noteNetworks(places, used)\n", New: ""},
	}
}

func TestWithoutUsage_FitsTheSource(t *testing.T) { harness.Faulty(t, withoutUsage()...) }

// TestUsage compares the product with a build that counts no usage and notes no networks.
func TestUsage(t *testing.T) {
	r := begin(t, "usage")
	const with, without = "with usage", "without usage"
	*rounds = max(*rounds, 10)
	bare := harness.Options{Durable: true, Binaries: harness.Broken(t, withoutUsage()...)}
	var loads []load
	for name, options := range map[string]harness.Options{with: {Durable: true}, without: bare} {
		running := harness.Private(t, options)
		b := benchOf(t, running, accountOf(running, name), resourcesOf(running, name)).signIn(t)
		loads = append(loads, b.usual(t)...)
	}
	all, order := measureAll(t, inTurn(loads), []int{1, 32})
	r.line("Two installations, of which one runs a build that counts no usage and notes no networks, take turns, %d "+
		"rounds of %s each. Ratios are", *rounds, *each)
	r.line("medians of the rounds' ratios. CPU is in microseconds a request: of the serving process, of its " +
		"Postgres, of its Redis.\n")
	r.table(all, order)
	for _, k := range order {
		if k.of == with {
			r.atLeast(all, k.what+", with usage of without", k, key{k.what, without, k.connections}, 0.97)
		}
	}
	r.write(t)
}

const jobWork = "one row and one job"

// TestSubmissions compares submissions of a public form, which a worker processes meanwhile, with refreshes and with a
// floor, which only stores them.
func TestSubmissions(t *testing.T) {
	r := begin(t, "submissions")
	running := harness.Private(t, harness.Options{Durable: true})
	b := enter(t, running)
	storing := startFloor(t, running.Redis, floorJobsVariable+"="+newJobsDatabase(t, running.Postgres))
	storing.postgres = []int{running.Postgres.PID()}
	submissions := b.submissions(t)
	submissions.run(t, 8, time.Second)
	b.product.Database.Define(t, "analyze") // as autovacuum does within a minute
	const body = `{"submissionToken": "x", "answers": {"name": "Ada Okafor", "email": "ada@example.org"}}`
	loads := []load{
		{what: refreshing, at: b.account, worker: b.refresh(t)},
		submissions,
		{what: jobWork, at: storing, statuses: []int{http.StatusAccepted}, worker: constant(func() *http.Request {
			// The arguments are constant, so NewRequest cannot fail.
			request, _ := http.NewRequest(http.MethodPost, storing.url, strings.NewReader(body))
			return request
		})},
	}
	connections := []int{8, 32}
	all, order := measureAll(t, loads, connections)
	r.line("%d rounds of %s each, in which everything takes its turn; generator and stores included. The floor "+
		"commits a row and a job in", *rounds, *each)
	r.line("one transaction and checks nothing. The processing of the submissions, until none waits, is part of " +
		"their time and costs.\n")
	r.table(all, order)
	const position = `select (pg_current_wal_lsn() - '0/0')::bigint`
	const size = `select pg_database_size(current_database())`
	wal, disk := b.product.Database.Count(t, position), b.product.Database.Count(t, size)
	sent := len(submissions.run(t, 32, *each).latencies)
	r.line("\nA submission, with its supporter and events, takes %d bytes in Postgres and %d of its WAL.",
		(b.product.Database.Count(t, size)-disk)/sent, (b.product.Database.Count(t, position)-wal)/sent)
	for _, n := range connections {
		ours := key{submission, ourselves, n}
		r.atLeast(all, "submission, of our floor", ours, key{jobWork, storing.name, n}, 0.6)
		r.atLeast(all, "submission, of a refresh", ours, key{refreshing, ourselves, n}, 0.5)
	}
	tail := all.median(key{submission, ourselves, 32}, func(s sample) float64 {
		return s.percentile(0.99).Seconds() / s.percentile(0.5).Seconds()
	})
	r.wants("p99 of the median, 32 connections: "+submission, "at most 3.00", tail, "", tail <= 3)
	r.write(t)
}
