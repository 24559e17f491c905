package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// speed writes the table of all results, and the goals.
func (r *report) speed(all results, order []key) {
	r.line("%d rounds of %s each, in which everything takes its turn; generator and stores included. Figures are "+
		"medians of the rounds, and ratios", *rounds, *each)
	r.line("medians of the rounds' ratios. The floor runs one Redis script and signs one ES256 token; a list's floor " +
		"is the same handler and query")
	r.line(
		"without the gate. CPU is in microseconds a request: of the serving process, of its Postgres, of its Redis.\n")
	r.table(all, order)
	r.capacity(all)
	r.speedGoals(all)
}

// speedGoals writes the goals of issue 21.
func (r *report) speedGoals(all results) {
	ours := func(what string, connections int) key { return key{what, ourselves, connections} }
	ratio := func(what string, k, to key, least float64) {
		measured := all.ratio(k, to)
		r.wants(what, fmt.Sprintf("at least %.2f", least), measured, "", measured >= least)
	}
	peer := func(what string) key { return key{what, peerName, 32} }
	ratio("refresh, of "+peerName+" (JWT)", ours(refreshing, 32), peer(refreshing), 3)
	ratio("code exchange, of "+peerName+" (JWT)", ours(codeExchange, 32), peer(codeExchange), 3.3)
	ratio("refresh, of our floor", ours(refreshing, 32), key{floorWork, "floor", 32}, 0.55)
	ratio("refresh, of our floor, 1 connection", ours(refreshing, 1), key{floorWork, "floor", 1}, 0.45)
	ratio("introspection, of "+peerName+" (opaque)", ours(introspection, 32), peer(introspection), 3)
	for _, what := range []string{garbage, badMAC, wrongSecret, wrongToken} {
		ratio(what+", of "+peerName+"'s refresh", ours(what, 32), peer(refreshing), 5)
	}
	tail := all.median(ours(garbage, 8), func(s sample) float64 { return s.percentile(0.99).Seconds() * 1e3 })
	r.wants("p99, 8 connections: "+garbage, "at most 5 ms", tail, " ms", tail <= 5)
	ungated := key{listUngated, ungatedName, 32}
	ratio("list with a connector's token, of the ungated", ours(listConnector, 32), ungated, 0.85)
}

// capacity writes the processors that a million refreshes a minute would use (deploy/SCALING.md).
func (r *report) capacity(all results) {
	const perSecond = 1e6 / 60
	refresh := key{refreshing, ourselves, 32}
	r.line("\nA million refreshes a minute (16,667 a second), from what one costs at 32 connections:\n\n| process | " +
		"µs a refresh | processors busy |\n|---|---|---|")
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
		beside, line)
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
		r.line("| %d | %s | %s | %.0f |%s %.2f | %.2f | %.0f | %s | %s |", k.connections, k.what, k.of,
			all.median(k, sample.perSecond), beside, milliseconds(0.5), milliseconds(0.99), cost(0), orNone(cost(1), 0),
			orNone(cost(2), 0))
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
