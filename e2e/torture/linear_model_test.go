package torture

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A call is an operation on one grant. The test numbers the tokens itself.
type call struct {
	does  string // exchange, refresh, use or revoke
	token int    // refresh: its number
	of    int    // refresh: its generation
	key   int    // exchange, refresh: number of the Idempotency-Key; 0 without one
	// forgotten: before the response, Redis may have lost the unused code or the time of the last step, or 60 seconds
	// may have passed.
	forgotten bool
}

// An outcome is the result of a call. Unknown is a 503 or no response: the call happened, did not happen, or may still
// happen. Unavailable is a 503 from a process that stays alive: an honest exchange or refresh did not happen (G10).
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

// A grantState is the state of a grant in the model. The current token is lost if its response was lost.
type grantState struct {
	state      string // pending, active or revoked
	generation int
	current    int
	from, key  int // credential and key for which the current token was given
}

const (
	lost = -1
	code = -2 // instead of the number of a token
)

// repeats reports whether a call repeats the one that got the current token, and so gets this token again.
func (l grantState) repeats(credential int, c call) bool {
	return l.state == "active" && c.key != 0 && l.from == credential && l.key == c.key
}

// repeated returns the possible next states of such a call (G11).
func (l grantState) repeated(c call, o outcome) []grantState {
	switch {
	case o.is == ok && (l.current == lost || l.current == o.token):
		l.current = o.token
		return []grantState{l}
	case o.is != ok && c.forgotten:
		return []grantState{{state: "revoked"}}
	}
	return nil
}

// grantModel accepts the histories of one grant that G1 to G9 and G11 allow. The order of the calls may be any in which
// a call that ended before another began comes first.
func grantModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{grantState{state: "pending"}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, l := range statesAfter(state.(grantState), input.(call), output.(outcome)) {
				next = append(next, l)
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	return model.ToModel()
}

// statesAfter returns the possible next states; none means that the outcome is illegal.
func statesAfter(l grantState, c call, o outcome) []grantState {
	var next []grantState
	if o.is == unknown || o.is == unavailable {
		next = append(next, l) // the call did not happen
	}
	revoked := grantState{state: "revoked"}
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

func exchanged(l grantState, c call, o outcome, revoked grantState) []grantState {
	switch {
	case l.state == "pending" && o.is == ok:
		return []grantState{{"active", 1, o.token, code, c.key}}
	case l.state == "pending" && o.is == unknown:
		return []grantState{{"active", 1, lost, code, c.key}}
	case l.repeats(code, c):
		return l.repeated(c, o)
	case l.state == "pending" && c.forgotten:
		return []grantState{l}
	case l.state == "active" && o.is != ok: // G1
		return []grantState{revoked}
	case l.state == "revoked" && o.is == refused:
		return []grantState{l}
	}
	return nil
}

func refreshed(l grantState, c call, o outcome, revoked grantState) []grantState {
	current := l.state == "active" && l.current == c.token
	switch {
	case current && o.is == ok:
		return []grantState{{"active", l.generation + 1, o.token, c.token, c.key}}
	case current && o.is == unknown:
		return []grantState{{"active", l.generation + 1, lost, c.token, c.key}}
	case l.repeats(c.token, c):
		return l.repeated(c, o)
	case l.state == "active" && c.of < l.generation && o.is != ok: // G3
		return []grantState{revoked}
	case l.state == "revoked" && o.is == refused:
		return []grantState{l}
	}
	return nil
}
