package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// These are the requests of the floor of shared/speed.md for each refresh and each code exchange of the peer. Our floor
// is leaner: it costs about half in its process and a seventh in Redis. Both were measured with the same peer, so these
// results can be compared with either.
const (
	documentedRefresh  = 4311. / 1538
	documentedExchange = 3775. / 975
)

// speed writes the table of all results, and the goals of issue 7.
func (r *report) speed(all results, order []key) {
	r.line(
		"%d rounds of %s each, in which everything takes its turn; generator and stores included. Figures are "+
			"medians of the rounds, and ratios",
		*rounds,
		*each,
	)
	r.line(
		"medians of the rounds' ratios. The floor runs one Redis script and signs one ES256 token; a list's floor " +
			"is the same handler and query",
	)
	r.line(
		"without the gate. CPU is in microseconds a request: of the serving process, of its Postgres, of its Redis.\n",
	)
	r.table(all, order)
	r.capacity(all)
	at32 := func(what, of string) key { return key{what, of, 32} }
	floor := at32(floorWork, "floor")
	of := func(what, asked string, measured, least float64) {
		r.wants(what, asked, measured, "", measured >= least)
	}
	ratio := func(what, asked string, k, to key, least float64) { of(what, asked, all.ratio(k, to), least) }
	ours := func(what string) key { return at32(what, ourselves) }
	ratio("refresh, of our floor", "at least 0.60", ours(refreshing), floor, 0.6)
	documented := func(what string, floor, least float64) {
		of(
			fmt.Sprintf("%s, of the floor of shared/speed.md (%.2f of %s there)", what, floor, peerName),
			fmt.Sprintf("at least %.2f", least),
			all.ratio(ours(what), at32(what, peerName))/floor,
			least,
		)
	}
	documented(refreshing, documentedRefresh, 0.6)
	ratio("refresh, of "+peerName+" (JWT)", "at least 1.5", ours(refreshing), at32(refreshing, peerName), 1.5)
	ratio("code exchange, of our floor", "at least 0.55", ours(codeExchange), floor, 0.55)
	documented(codeExchange, documentedExchange, 0.55)
	ratio("code exchange, of "+peerName+" (JWT)", "at least 2", ours(codeExchange), at32(codeExchange, peerName), 2)
	ratio(
		"introspection, of "+peerName+" (opaque)",
		"at least 1.5",
		ours(introspection),
		at32(introspection, peerName),
		1.5,
	)
	ratio(
		"list with a connector's token, of the ungated",
		"at least 0.80",
		ours(listConnector),
		at32(listUngated, ungatedName),
		0.8,
	)
	ratio(
		"list with a personal access token, of the ungated",
		"at least 0.80",
		ours(listPAT),
		at32(listUngated, ungatedName),
		0.8,
	)
	for _, what := range []string{garbage, badMAC, wrongSecret, wrongToken} {
		ratio(what+", of a refresh", "at least 3", ours(what), ours(refreshing), 3)
	}
	for _, k := range order {
		if k.connections == 8 && k.of == ourselves {
			tail := all.median(
				k,
				func(s sample) float64 { return s.percentile(0.99).Seconds() / s.percentile(0.5).Seconds() },
			)
			r.wants("p99 of p50, 8 connections: "+k.what, "at most 6", tail, "", tail <= 6)
		}
	}
}

// capacity writes the processors that a million refreshes a minute would use (deploy/SCALING.md).
func (r *report) capacity(all results) {
	const perSecond = 1e6 / 60
	refresh := key{refreshing, ourselves, 32}
	r.line(
		"\nA million refreshes a minute (16,667 a second), from what one costs at 32 connections:\n\n| process | µs " +
			"a refresh | processors busy |\n|---|---|---|",
	)
	for i, process := range []string{"authserver", "Postgres", "Redis"} {
		cost := all.median(refresh, func(s sample) float64 { return s.cost(i) })
		r.line("| %s | %.0f | %.1f |", process, cost, perSecond*cost/1e6)
	}
}

// table writes a row for each key, with columns only for what was measured.
func (r *report) table(all results, order []key) {
	beside, line := "", "|---|---|---|---|"
	if all.has("floor") {
		beside, line = beside+" of the floor |", line+"---|"
	}
	if all.has(peerName) {
		beside, line = beside+" of the peer |", line+"---|"
	}
	r.line(
		"| connections | what | of | requests/s |%s p50 ms | p99 ms | CPU | Postgres | Redis |\n%s---|---|---|---|---|",
		beside,
		line,
	)
	for _, k := range order {
		milliseconds := func(p float64) float64 {
			return all.median(k, func(s sample) float64 { return s.percentile(p).Seconds() * 1e3 })
		}
		cost := func(i int) float64 { return all.median(k, func(s sample) float64 { return s.cost(i) }) }
		beside := ""
		if all.has("floor") {
			beside += fmt.Sprintf(" %s |", orNone(all.ratio(k, floorOf(k)), 2))
		}
		if all.has(peerName) {
			beside += fmt.Sprintf(" %s |", orNone(all.ratio(k, key{k.what, peerName, k.connections}), 2))
		}
		r.line(
			"| %d | %s | %s | %.0f |%s %.2f | %.2f | %.0f | %s | %s |",
			k.connections,
			k.what,
			k.of,
			all.median(k, sample.perSecond),
			beside,
			milliseconds(0.5),
			milliseconds(0.99),
			cost(0),
			orNone(cost(1), 0),
			orNone(cost(2), 0),
		)
	}
}

// floorOf returns the key with which a row is compared.
func floorOf(k key) key {
	switch {
	case strings.HasPrefix(k.what, "list"):
		return key{listUngated, ungatedName, k.connections}
	case k.what == submission:
		return key{}
	}
	return key{floorWork, "floor", k.connections}
}

// orNone formats a number, or returns "" if it was not measured or is zero.
func orNone(n float64, digits int) string {
	if math.IsNaN(n) || n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', digits, 64)
}
