package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/rest"
)

// Submissions are partitioned by the month of created_at. Statements name the months that they read as constants, not
// as parameters: PostgreSQL then plans only the partitions of these months and keeps the plan.

const (
	// maxClockSkew is the longest expected difference between the time in the id of a submission, by the clock of the
	// process that accepted it, and created_at, by the clock of the database.
	maxClockSkew = 24 * time.Hour
	// keptYears is longer than any form keeps its submissions.
	keptYears = 11
	// lateAfter is more than the age of a submission that ends late (30 days in the trigger note_late, where a day may
	// have 25 hours).
	lateAfter = 31 * 24 * time.Hour
)

// inMonths returns a condition on created_at, preceded by "and": the time is in the month of first, in that of last, or
// between them. A zero time is no bound. The condition is wider for a first in the future and for times before
// keptYears, so that there are few different statements.
func inMonths(first, last time.Time) string {
	now := time.Now()
	oldest, text := now.AddDate(-keptYears, 0, 0), ""
	if first.After(now) {
		first = now
	}
	if first.After(oldest) {
		text = " and created_at >= '" + month(first, 0).Format(time.RFC3339) + "'"
	}
	if last.IsZero() || last.After(now.Add(maxClockSkew)) {
		return text
	}
	if last.Before(oldest) {
		last = oldest
	}
	return text + " and created_at < '" + month(last, 1).Format(time.RFC3339) + "'"
}

// month returns the start of the month of t, or of the month that is so many months later.
func month(t time.Time, later time.Month) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month()+later, 1, 0, 0, 0, 0, time.UTC)
}

// monthsOf returns the conditions with which the submission with the id is looked for: the months in which it is
// expected, and then none.
func monthsOf(id uuid.UUID) []string {
	if id.Version() != 7 {
		return []string{""}
	}
	made := time.Unix(id.Time().UnixTime())
	return []string{inMonths(made.Add(-maxClockSkew), made.Add(maxClockSkew)), ""}
}

// Submissions passes one page of a form's submissions, newest first, to take until it returns false. It reads the
// latest month and the month before it, and older months only if these have too few submissions.
func (e *Engage) Submissions(
	ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.Submission) bool,
) (rest.End, error) {
	if !r.UpdatedSince.IsZero() {
		return e.changedSubmissions(ctx, workspaceID, form, r, take)
	}
	taken := 0
	read := func(first, last time.Time) (rest.End, error) {
		part := r
		part.Limit -= taken
		text := "select " + submissionColumns +
			" from resource.submissions s where s.tenant_id = $1 and s.form_id = $2" + notErased
		count := func(s engage.Submission) bool {
			taken++
			return take(s)
		}
		whose := arguments{workspaceID, form}
		return readRange(ctx, e.pool, text+inMonths(first, last), "s", whose, part, scanSubmission, count)
	}
	last := r.CreatedBefore
	if r.After != nil && (last.IsZero() || r.After.CreatedAt.Before(last)) {
		last = r.After.CreatedAt
	}
	latest := time.Now()
	if !last.IsZero() && last.Before(latest) {
		latest = last
	}
	recent := month(latest, -1)
	if !r.CreatedSince.Before(recent) {
		return read(r.CreatedSince, last)
	}
	end, err := read(recent, last)
	if err != nil || end.More {
		return end, err
	}
	return read(r.CreatedSince, recent.Add(-time.Microsecond))
}

// endedLate is true if a submission of the form $2 ended late since $3.
const endedLate = `exists (select 1 from resource.list_locks
	where tenant_id = $1 and list = $2::uuid::text and late_at >= $3)`

// changedSubmissions is Submissions for a range with UpdatedSince. It reads the months of submissions that ended since
// then, unless one of them ended late: then it reads all months.
func (e *Engage) changedSubmissions(
	ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.Submission) bool,
) (rest.End, error) {
	c := changesSQL{
		table:         "resource.submissions",
		columns:       submissionColumns,
		whose:         "tenant_id = $1 and form_id = $2",
		changedAt:     "finished_at",
		wasChanged:    "finished_at is not null",
		updatedAt:     "coalesce(finished_at, created_at)",
		createdMonths: inMonths(r.UpdatedSince, time.Time{}),
		since:         "$3",
		limit:         "$4",
	}
	args := arguments{workspaceID, form, r.UpdatedSince, r.Limit + 1}
	filter := filterSQL(r.Filter, "", args.add) + notErased
	if r.After != nil {
		c.after = args.add(r.After.CreatedAt) + ", " + args.add(r.After.ID)
		c.until = args.add(r.After.Until)
	}
	taken := false
	read := func() (end rest.End, err error) {
		rows, _ := e.pool.Query(ctx, c.String(), args...) // the rows have the error
		end.More, err = takeRows(rows, r.Limit, func(row pgx.CollectableRow) (engage.Submission, error) {
			taken = true
			return submissionOf(row, &end.Until)
		}, take)
		return end, outcome(err)
	}
	c.filter, c.changedMonths = filter+" and not "+endedLate, inMonths(r.UpdatedSince.Add(-lateAfter), time.Time{})
	end, err := read()
	if err != nil || taken {
		return end, err
	}
	var late bool
	if err := e.pool.QueryRow(ctx, "select "+endedLate, args[:3]...).Scan(&late); err != nil || !late {
		return end, outcome(err)
	}
	c.filter, c.changedMonths = filter, ""
	return read()
}
