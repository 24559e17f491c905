package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// actsOf divides events, the latest first, into acts: what one actor did by one request. A search for a request shows
// each of its events.
func actsOf(events []audit.Entry, search logSearch) (acts [][]audit.Entry) {
	begins := 0
	for i, e := range events {
		goesOn := i+1 < len(events) && e.RequestID != "" && e.RequestID == events[i+1].RequestID &&
			e.Actor == events[i+1].Actor
		if !goesOn || search.Has("request") {
			acts = append(acts, events[begins:i+1])
			begins = i + 1
		}
	}
	return acts
}

// An act is a line of the audit log: what one request did. Its Title is the change that the user made, or a count, and
// its More says more about it and what else happened because of it.
type act struct {
	eventRow // the first of its events
	Count    int
	Listed   []eventRow // the first of them, in their order; none if the act is one event
	Former   string     // path of the page of the member whose membership it ended, or ""
}

// Limits of the events that a page lists below their acts.
const mostListed, mostUnfolded = 12, 60

// describeAct describes an act in words. It lists at most room events.
func describeAct(events []audit.Entry, room int) act {
	rows := make([]eventRow, len(events)) // the first of them first
	for i, e := range events {
		rows[len(events)-1-i] = eventView(e, nil)
	}
	kinds := alike(rows)
	out := act{eventRow: rows[0], Count: len(rows)}
	out.Alarming = slices.ContainsFunc(rows, func(e eventRow) bool { return e.Alarming })
	if len(rows) > 1 {
		out.Listed = rows[:max(0, min(len(rows), mostListed, room))]
	}
	out.Title = together(kinds[0], true)
	var more []string
	if one := kinds[0]; len(one) == 1 && one[0].More != "" {
		more = append(more, one[0].More)
	}
	for _, k := range kinds[1:] {
		more = append(more, together(k, false))
	}
	out.More = strings.Join(more, " · ")
	return out
}

// alike returns the events of an act by what they are counted with. Those that the act is named after come first.
func alike(rows []eventRow) (kinds [][]eventRow) {
	for _, row := range rows {
		same := func(k []eventRow) bool { return k[0].Action == row.Action && k[0].many() == row.many() }
		at := slices.IndexFunc(kinds, same)
		if at < 0 {
			kinds, at = append(kinds, nil), len(kinds)
		}
		kinds[at] = append(kinds[at], row)
	}
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(kinds), func(k []eventRow) bool { return k[0].many() != "" }),
		slices.DeleteFunc(kinds, func(k []eventRow) bool { return k[0].many() == "" }),
	)
}

// many returns the words for several events like this one that belong to one act, or "" if the act is named after it.
func (e eventRow) many() string {
	described, _ := audit.Describe(e.Action)
	if e.Flag("unused") {
		return strings.Replace(described.Many, "connection", "unused approval", 1)
	}
	return described.Many
}

// together describes events of one kind. The first words of a line say all of a single event.
func together(events []eventRow, first bool) string {
	one, many := events[0].Title, events[0].many()
	switch at := strings.LastIndexByte(many, ' '); {
	case len(events) == 1 && (first || many == ""):
		return one
	case many == "":
		return fmt.Sprintf("%s, and %d more like this", one, len(events)-1)
	default:
		return ui.Count(len(events), many[:at]) + many[at:]
	}
}
