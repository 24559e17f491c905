package bench

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

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
