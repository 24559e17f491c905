package torture

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// What somebody does with one grant. Tokens have numbers of the test's own.
type call struct {
	does  string // exchange, refresh, use or revoke
	token int    // refresh: which one
	of    int    // refresh: its generation
	// forgotten: Redis may have lost an unused code, or its 60 seconds may be over, before this was answered
	forgotten bool
}

// What came of it. Unknown is a 503 or no answer: it happened, or it did not, or it is still to happen. Unavailable is
// a 503 of a process that lives on: an honest exchange or refresh did not happen (G10).
type outcome struct {
	is    string // ok, refused, unknown or unavailable
	token int    // ok: the new refresh token
}

const (
	ok      = "ok"
	refused = "refused"
	unknown = "unknown"

	unavailable = "unavailable"
)

// A life is all that matters of a grant. The current token is lost where its answer never came.
type life struct {
	state      string // pending, active or revoked
	generation int
	current    int
}

const lost = -1

// grantModel says which histories of one grant are legal: those that G1 to G9 allow, in some order of the calls that
// agrees with who finished before whom began.
func grantModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{life{state: "pending"}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, l := range livesAfter(state.(life), input.(call), output.(outcome)) {
				next = append(next, l)
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	return model.ToModel()
}

// livesAfter returns the lives that may follow; none means that this answer could not be given.
func livesAfter(l life, c call, o outcome) []life {
	var next []life
	if o.is == unknown || o.is == unavailable {
		next = append(next, l) // it did not happen
	}
	revoked := life{state: "revoked"}
	switch c.does {
	case "exchange":
		next = append(next, exchanged(l, c, o, revoked)...)
	case "refresh":
		next = append(next, refreshed(l, c, o, revoked)...)
	case "revoke":
		if o.is != refused {
			next = append(next, revoked)
		}
	case "use":
		if (o.is == ok) == (l.state == "active") && o.is != unknown {
			next = append(next, l)
		}
	}
	return next
}

func exchanged(l life, c call, o outcome, revoked life) []life {
	switch {
	case l.state == "pending" && o.is == ok:
		return []life{{"active", 1, o.token}}
	case l.state == "pending" && o.is == unknown:
		return []life{{"active", 1, lost}}
	case l.state == "pending" && c.forgotten:
		return []life{l}
	case l.state == "active" && o.is != ok: // G1
		return []life{revoked}
	case l.state == "revoked" && o.is == refused:
		return []life{l}
	}
	return nil
}

func refreshed(l life, c call, o outcome, revoked life) []life {
	current := l.state == "active" && l.current == c.token
	switch {
	case current && o.is == ok:
		return []life{{"active", l.generation + 1, o.token}}
	case current && o.is == unknown:
		return []life{{"active", l.generation + 1, lost}}
	case l.state == "active" && c.of < l.generation && o.is != ok: // G3
		return []life{revoked}
	case l.state == "revoked" && o.is == refused:
		return []life{l}
	}
	return nil
}
