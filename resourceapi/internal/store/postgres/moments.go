package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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

// nextMoment locks a list and returns the time of the last of the given number of new records. It is a separate
// statement, because a distributed database cannot call this function as part of a write.
func nextMoment(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, list string, records int,
) (at time.Time, err error) {
	err = tx.QueryRow(ctx, "select resource.next_moment($1, $2, $3)", workspaceID, list, records).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("lock the list of %s: %w", list, err)
	}
	return at, nil
}

// submissionsList returns the name of the list of the form's submissions.
func submissionsList(form uuid.UUID) string { return form.String() }
