package settings

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// An effects says what a change would do, before it is confirmed.
type effects struct {
	Failed     bool     // it could not be worked out
	Sentence   string   // the biggest facts
	Facts      []string // the others
	Lines      []effectLine
	More       int // credentials without a line
	Operations []operationLine
}

// An effectLine says what happens to a connected app or a token.
type effectLine struct {
	Name, Person string
	Token        bool
	Fate         string
	Requests     string // that would have been refused, or ""
}

// An operationLine says how often something would have been refused.
type operationLine struct {
	Title    string
	Requests int64
}

// mostLines is the number of connected apps and tokens that a page lists.
const mostLines = 20

// rehearse says what a change would do. If the user may not make the change now, the error is that of the change; if it
// cannot be worked out, the page says so.
func (s *Settings) rehearse(r *request, change rehearsal.Change) (*effects, rehearsal.Outcome, error) {
	outcome, err := s.Rehearsed.Run(r.ctx(), r.actor(), change)
	for _, failure := range []error{rehearsal.ErrBusy, rehearsal.ErrTooMany, store.ErrUnavailable} {
		if errors.Is(err, failure) {
			return &effects{Failed: true}, outcome, nil
		}
	}
	if err != nil {
		return nil, outcome, err
	}
	return effectsOf(outcome), outcome, nil
}

func effectsOf(o rehearsal.Outcome) *effects {
	e := &effects{More: max(0, len(o.Affected)-mostLines)}
	facts := factsOf(o)
	first := facts[:min(len(facts), 2)]
	e.Facts = facts[len(first):]
	if requests := requestsOf(o); requests != "" {
		first = append(slices.Clone(first), requests)
	}
	e.Sentence = strings.Join(first, "; ") + "."
	if len(first) == 0 {
		e.Sentence = "No connected app or token is affected."
	}
	for _, a := range o.Affected[:min(len(o.Affected), mostLines)] {
		line := effectLine{Name: a.Name, Person: a.Person, Token: a.IsToken(), Fate: fateOf(a)}
		if a.Requests > 0 {
			line.Requests = ui.Count(int(a.Requests), "request") + " in the last 30 days would have been refused"
		}
		e.Lines = append(e.Lines, line)
	}
	for _, one := range o.Operations {
		e.Operations = append(e.Operations, operationLine{cmp.Or(operationWords()[one.Name], one.Name), one.Requests})
	}
	return e
}

// factsOf returns what a change would do, the biggest first.
func factsOf(o rehearsal.Outcome) (facts []string) {
	const pause = " until AI assistants are switched on again"
	facts = append(facts, losing(o, rehearsal.Ends, "loses ", "lose ", "")...)
	facts = append(facts, losing(o, rehearsal.Pauses, "cannot use ", "cannot use ", pause)...)
	facts = append(facts, counted(len(o.With(rehearsal.Ends, true)), "token", "stops working", "stop working")...)
	facts = append(facts, counted(len(o.With(rehearsal.Narrows, false)), "connected app", "loses permissions",
		"lose permissions")...)
	facts = append(facts, counted(len(o.With(rehearsal.Narrows, true)), "token", "loses permissions",
		"lose permissions")...)
	facts = append(facts, counted(o.Sooner, "connected app", "expires sooner", "expire sooner")...)
	facts = append(facts, counted(len(o.Webhooks), "webhook endpoint", "stops", "stop")...)
	return append(facts, counted(len(o.Invitations), "open invitation", "is withdrawn", "are withdrawn")...)
}

func counted(n int, what, one, many string) []string {
	switch n {
	case 0:
		return nil
	case 1:
		return []string{"1 " + what + " " + one}
	}
	return []string{ui.Count(n, what) + " " + many}
}

// losing returns a fact for each app whose connections have a fate, the most used first, and one for those after the
// second.
func losing(o rehearsal.Outcome, fate rehearsal.Fate, one, many, until string) (facts []string) {
	type app struct {
		name   string
		people map[uuid.UUID]string // their names
	}
	var apps []app
	for _, a := range o.Affected {
		if a.Fate != fate || a.IsToken() {
			continue
		}
		i := slices.IndexFunc(apps, func(known app) bool { return known.name == a.Name })
		if i < 0 {
			i, apps = len(apps), append(apps, app{a.Name, map[uuid.UUID]string{}})
		}
		apps[i].people[a.UserID] = a.Person
	}
	slices.SortStableFunc(apps, func(a, b app) int { return cmp.Compare(len(b.people), len(a.people)) })
	for _, a := range apps[:min(len(apps), 2)] {
		who := ui.Number(len(a.people)) + " people " + many
		if len(a.people) == 1 {
			for _, name := range a.people {
				who = name + " " + one
			}
		}
		facts = append(facts, who+a.name+until)
	}
	if others := len(apps) - len(facts); others > 0 {
		facts = append(facts, ui.Count(others, "other app")+" will be without access"+until)
	}
	return facts
}

// requestsOf says which requests would have been refused, or returns "".
func requestsOf(o rehearsal.Outcome) string {
	switch {
	case o.Requests == 0:
		return ""
	case o.Affected[0].Requests == o.Requests:
		times := ui.Count(int(o.Requests), "time")
		return o.Affected[0].Name + " would have been refused " + times + " in the last 30 days"
	}
	return ui.Count(int(o.Requests), "request") + " of the last 30 days would have been refused"
}

func fateOf(a rehearsal.Affected) string {
	switch a.Fate {
	case rehearsal.Ends:
		if a.IsToken() {
			return "Stops working"
		}
		return "Disconnected"
	case rehearsal.Pauses:
		return "Has no access until AI assistants are switched on again"
	case rehearsal.Narrows:
		return "Loses: " + strings.Join(titles(a.Loses), ", ")
	}
	return "Stays, but some of its requests are refused"
}
