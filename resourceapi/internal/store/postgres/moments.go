package postgres

import "github.com/google/uuid"

// Records of one list become visible in the order of their times (P3, P6 of package programme; E7 of package engage):
// resource.next_moment locks the list until the transaction ends and returns a time that is later than every time in
// it. So everything that may wait for another transaction (an idempotency key, the row that is changed, a unique value)
// comes before it in a transaction, or two transactions may wait for each other.
//
// A long import chooses its times before it locks the list, and looks afterwards whether they are the latest
// (importahead.go).

// Lists as resource.next_moment names them. The submissions of a form are named by its id.
const (
	programmesList = "programmes"
	formsList      = "forms"
)

// submissionsList names the list of what was sent in to the form.
func submissionsList(form uuid.UUID) string { return form.String() }
