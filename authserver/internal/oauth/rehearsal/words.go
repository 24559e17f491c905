package rehearsal

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Words says to a reader what a change would do, on pages and in the answers to operators, who are the zero id: the
// biggest facts in one sentence, and the others. number writes a number.
func (o Outcome) Words(reader uuid.UUID, number func(int) string) (sentence string, others []string) {
	w := words{o, reader, number}
	facts := w.facts()
	for i, fact := range facts {
		if own, is := strings.CutPrefix(fact, "you "); is && (i == 0 || i >= inSentence) {
			facts[i] = "You " + own
		}
	}
	first := facts[:min(len(facts), inSentence)]
	others = facts[len(first):]
	first = append(slices.Clone(first), w.requests()...)
	if len(first) == 0 {
		return "No connected app or token is affected.", nil
	}
	return strings.Join(first, "; ") + ".", others
}

// words are the words for an outcome.
type words struct {
	Outcome
	reader uuid.UUID
	number func(int) string
}

// inSentence is how many facts the sentence has, besides that about requests.
const inSentence = 2

// facts returns what the change would do, the biggest first.
func (w words) facts() []string {
	facts := w.losing(Ends, "loses", "lose")
	paused := w.losing(Pauses, "cannot use", "cannot use")
	for i, fact := range paused {
		if i == len(paused)-1 || len(facts) == inSentence-1 { // the last one there, or in the sentence
			fact += " until AI assistants are switched on again"
		}
		facts = append(facts, fact)
	}
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
		facts = append(facts, w.counted(f.n, f.what, f.one, f.many)...)
	}
	return facts
}

// counted returns a fact about things whose plural ends in s, or none if there are none of them.
func (w words) counted(n int, what, one, many string) []string {
	switch n {
	case 0:
		return nil
	case 1:
		return []string{"1 " + what + " " + one}
	}
	return []string{w.number(n) + " " + what + "s " + many}
}

// losing returns a fact for each of the two apps that most people lose by a fate, and one for the other apps.
func (w words) losing(fate Fate, one, many string) (facts []string) {
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
	most, others := apps[:min(len(apps), 2)], max(0, len(apps)-2)
	if len(most) == 2 && maps.Equal(most[0].people, most[1].people) {
		most[0].name += " and " + most[1].name
		most = most[:1]
	}
	for _, a := range most {
		who := w.number(len(a.people)) + " people " + many
		if len(a.people) == 1 {
			for id, name := range a.people {
				if who = name + " " + one; id == w.reader {
					who = "you " + many
				}
			}
		}
		facts = append(facts, who+" "+a.name)
	}
	return append(facts, w.counted(others, "other app", "loses access", "lose access")...)
}

// requests returns the fact about requests that would have been refused, or none.
func (w words) requests() []string {
	n, name := int(w.Outcome.Requests), ""
	if n > 0 && w.Affected[0].Requests == w.Outcome.Requests {
		name = w.Affected[0].Name
	}
	const since = "in the last 30 days"
	if name != "" && n == 1 {
		return []string{name + " would have been refused once " + since}
	}
	if name != "" {
		return []string{name + " would have been refused " + w.number(n) + " times " + since}
	}
	return w.counted(n, "request", "of the last 30 days would have been refused",
		"of the last 30 days would have been refused")
}
