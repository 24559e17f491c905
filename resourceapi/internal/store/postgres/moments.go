package postgres

import "github.com/google/uuid"

// Records of one list become visible in the order of their times (P3, P6 of package programme; E7 of package engage):
// resource.next_moment locks the list until the transaction ends and returns a time later than every time in it. So
// everything in a transaction that may wait for another transaction (an idempotency key, the row to change, a unique
// value) must come before it, or two transactions may deadlock.
//
// A long import chooses its times before it locks the list, and then checks whether they are the latest
// (importahead.go).

// Names of the lists for resource.next_moment. The submissions of a form are named by the id of the form.
const (
	programmesList = "programmes"
	formsList      = "forms"
)

// submissionsList returns the name of the list of the form's submissions.
func submissionsList(form uuid.UUID) string { return form.String() }
