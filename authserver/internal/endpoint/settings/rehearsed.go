package settings

import (
	"cmp"
	"errors"
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
	for _, failure := range []error{
		rehearsal.ErrBusy, rehearsal.ErrTooMany, rehearsal.ErrTooSlow, store.ErrUnavailable,
	} {
		if errors.Is(err, failure) {
			return &effects{Failed: true}, outcome, nil
		}
	}
	if err != nil {
		return nil, outcome, err
	}
	return effectsOf(outcome, r.user.User.ID), outcome, nil
}

func effectsOf(o rehearsal.Outcome, reader uuid.UUID) *effects {
	e := &effects{More: max(0, len(o.Affected)-mostLines)}
	e.Sentence, e.Facts = o.Words(reader, ui.Number)
	for _, a := range o.Affected[:min(len(o.Affected), mostLines)] {
		line := effectLine{Name: a.Name, Person: a.Person, Token: a.IsToken(), Fate: fateOf(a)}
		if a.UserID == reader {
			line.Person = "You"
		}
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
