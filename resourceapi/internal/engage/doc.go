// Package engage answers: what is a public form, and what is a good answer to it?
//
// A workspace makes forms; anybody may fill them in on the websites that the form names. What was sent in is accepted
// first and processed later, by a worker, into a supporter (contract, section 6).
//
//   - E1 A form has 1 to 50 fields, each with a name of its own and a known type.
//   - E2 Only answers that are good in every field are accepted; a refusal says what is wrong with each.
//   - E3 A submission token is good for one submission to one form, within an hour.
//   - E4 A consent is stored with the version of the notice that was on screen.
//   - E5 A submission is accepted, then processed or rejected, and that is its end.
//   - E6 What a stranger sends in changes nothing that was known about a supporter.
//   - E7 The forms of a workspace, and the submissions of a form, become visible in the order of their times: none appears
//     with a createdAt or updatedAt that is not later than all that could be read before.
package engage

import "errors"

var (
	// ErrNotFound says that there is no such form or submission, or none that may be seen.
	ErrNotFound = errors.New("no such form or submission")
	// ErrStale says that the form was changed since the caller read it.
	ErrStale = errors.New("stale version")
	// ErrToken says that a submission token was not made here for this form, or is older than an hour.
	ErrToken = errors.New("no valid submission token")
	// ErrTokenUsed says that a submission was made with this token already.
	ErrTokenUsed = errors.New("submission token used")
)

// Problems say what is wrong, by the name of the field.
type Problems map[string]string

func (p Problems) Error() string { return "invalid fields" }

func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
