package rehearsal

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Words says what a change would do, on pages and in the answers to operators: the biggest facts in one sentence, and
// the others. number writes a number.
func (o Outcome) Words(number func(int) string) (sentence string, others []string) {
	w := words{o, number}
	facts := w.facts()
	first := facts[:min(len(facts), 2)]
	others = facts[len(first):]
	if requests := w.requests(); requests != "" {
		first = append(slices.Clone(first), requests)
	}
	if len(first) == 0 {
		return "No connected app or token is affected.", nil
	}
	return strings.Join(first, "; ") + ".", others
}

// words are the words for an outcome.
type words struct {
	Outcome
	number func(int) string
}

// facts returns what the change would do, the biggest first.
func (w words) facts() (facts []string) {
	const pause = " until AI assistants are switched on again"
	facts = append(facts, w.losing(Ends, "loses ", "lose ", "")...)
	facts = append(facts, w.losing(Pauses, "cannot use ", "cannot use ", pause)...)
	for _, f := range []struct {
		n               int
		what, one, many string
	}{
		{len(w.With(Ends, true)), "token", "stops working", "stop working"},
		{len(w.With(Narrows, false)), "connected app", "loses permissions", "lose permissions"},
		{len(w.With(Narrows, true)), "token", "loses permissions", "lose permissions"},
		{w.Sooner, "connected app", "expires sooner", "expire sooner"},
		{len(w.Webhooks), "webhook endpoint", "stops", "stop"},
		{len(w.Invitations), "open invitation", "is withdrawn", "are withdrawn"},
	} {
		switch {
		case f.n == 1:
			facts = append(facts, "1 "+f.what+" "+f.one)
		case f.n > 1:
			facts = append(facts, w.count(f.n, f.what)+" "+f.many)
		}
	}
	return facts
}

// count counts things whose plural ends in s.
func (w words) count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return w.number(n) + " " + what
}

// losing returns a fact for each of the two apps that most people lose by a fate, and one for the other apps.
func (w words) losing(fate Fate, one, many, until string) (facts []string) {
	type app struct {
		name   string
		people map[uuid.UUID]string // their names
	}
	var apps []app
	places := map[string]int{}
	for _, a := range w.Affected {
		if a.Fate != fate || a.IsToken() {
			continue
		}
		i, known := places[a.Name]
		if !known {
			i = len(apps)
			places[a.Name], apps = i, append(apps, app{a.Name, map[uuid.UUID]string{}})
		}
		apps[i].people[a.UserID] = a.Person
	}
	slices.SortStableFunc(apps, func(a, b app) int { return cmp.Compare(len(b.people), len(a.people)) })
	for _, a := range apps[:min(len(apps), 2)] {
		who := w.number(len(a.people)) + " people " + many
		if len(a.people) == 1 {
			for _, name := range a.people {
				who = name + " " + one
			}
		}
		facts = append(facts, who+a.name+until)
	}
	if others := len(apps) - len(facts); others > 0 {
		facts = append(facts, w.count(others, "other app")+" will be without access"+until)
	}
	return facts
}

// requests says which requests would have been refused, or returns "".
func (w words) requests() string {
	switch {
	case w.Outcome.Requests == 0:
		return ""
	case w.Affected[0].Requests == w.Outcome.Requests:
		times := w.count(int(w.Requests), "time")
		return w.Affected[0].Name + " would have been refused " + times + " in the last 30 days"
	}
	return w.count(int(w.Requests), "request") + " of the last 30 days would have been refused"
}
