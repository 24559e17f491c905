// Package engage defines public forms, the answers to them and the tokens of their submissions.
//
// A workspace creates forms; anyone can submit them on the websites that the form lists. A submission is accepted first
// and later processed by a worker, which creates a supporter (contract, section 6).
//
//   - E1 A form has 1 to 50 fields, each with a unique name and a known type.
//   - E2 Answers are accepted only if every field is valid; a refusal says what is wrong with each.
//   - E3 A submission token is valid for one submission to one form, within an hour.
//   - E4 A consent is stored with the version of the notice that was on screen.
//   - E5 A submission is accepted, then processed or rejected; both are final.
//   - E6 A submission by a stranger never changes what is stored about a supporter.
//   - E7 The forms of a workspace, and the submissions of a form, become visible in the order of their times: none
//     appears with a createdAt or updatedAt that is not later than all that could be read before.
package engage

import "errors"

var (
	// ErrNotFound is returned if there is no such form or submission, or none that the caller may see.
	ErrNotFound = errors.New("no such form or submission")
	// ErrNoSubmission and ErrNoSupporter are returned if the workspace has no such record.
	ErrNoSubmission = errors.New("no such submission in this workspace")
	ErrNoSupporter  = errors.New("no such supporter in this workspace")
	// ErrToken is returned for a submission token that was not issued for this form or is older than an hour.
	ErrToken = errors.New("no valid submission token")
	// ErrTokenUsed is returned if a submission was already made with this token.
	ErrTokenUsed = errors.New("submission token used")
)
