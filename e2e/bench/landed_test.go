package bench

import (
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// TestLanded compares the previous release with the current code. Their rounds alternate, so that other load on the
// machine affects both equally.
func TestLanded(t *testing.T) {
	r := begin(t, "landed")
	const before, after = "landed", "now"
	commit := harness.LandedCommit()
	earlier := harness.Options{Durable: true, Fresh: true, Binaries: harness.Earlier(t, commit)}
	var loads []load
	for name, options := range map[string]harness.Options{before: earlier, after: {Durable: true}} {
		running := harness.Private(t, options)
		loads = append(loads, direct(t, name, running, running.Authservers[0], []int{running.Postgres.PID()})...)
	}
	all, order := measureAll(t, inTurn(loads), []int{1, 32})
	r.line("Commit %.8s and this one take turns, %d rounds of %s each. Ratios are medians of the rounds' ratios.",
		commit, *rounds, *each)
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
