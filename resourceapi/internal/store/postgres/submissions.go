package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/rest"
)

// SQLSTATE codes: a referenced row does not exist, and a unique value is already used.
const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
)

// SubmissionStatus reads the status of a submission, or returns engage.ErrNotFound. If workspaceID is zero, as in a
// status token of an earlier release, it searches all workspaces.
func (e *Engage) SubmissionStatus(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error) {
	const status = "select s.id, s.tenant_id as workspace_id, s.form_id as form, s.status, s.reasons "
	text, args := status+"from resource.submissions s where s.tenant_id = $1 and s.id = $2"+notErased,
		[]any{workspaceID, id}
	if workspaceID == uuid.Nil {
		text, args = status+"from resource.submissions s where s.id = $1", []any{id}
	}
	scan := pgx.RowToStructByNameLax[engage.Submission]
	return oneSubmission(ctx, e.pool, id, engage.ErrNotFound, scan, text, args...)
}

// oneSubmission is oneRow for a statement about the submission with this id. text ends with a condition, to which
// oneSubmission adds each month that the id allows, until it finds the row.
func oneSubmission[T any](
	ctx context.Context, db *database, id uuid.UUID, missing error, scan pgx.RowToFunc[T], text string, args ...any,
) (one T, err error) {
	for _, months := range monthsOf(id) {
		one, err = oneRow(ctx, db, missing, scan, text+months, args...)
		if !errors.Is(err, missing) {
			break
		}
	}
	return one, err
}

const submissionColumns = "id, status, reasons, answers, consents, supporter_id, created_at, finished_at"

func scanSubmission(row pgx.CollectableRow) (engage.SubmissionRecord, error) {
	return submissionOf(row)
}

// submissionOf reads a row of submissionColumns followed by further columns.
func submissionOf(row pgx.CollectableRow, further ...any) (s engage.SubmissionRecord, err error) {
	columns := []any{&s.ID, &s.Status, &s.Reasons, (*[]byte)(&s.Answers), &s.Consents, &s.SupporterID, &s.CreatedAt,
		&s.FinishedAt}
	err = row.Scan(append(columns, further...)...)
	s.UpdatedAt = *cmp.Or(s.FinishedAt, &s.CreatedAt)
	return s, err
}

// Submission reads a submission. It returns engage.ErrNoSubmission, also for one of another workspace.
func (s *Store) Submission(ctx context.Context, workspaceID, id uuid.UUID) (engage.SubmissionRecord, error) {
	text := "select " + submissionColumns + " from resource.submissions where tenant_id = $1 and id = $2" + notErased
	return oneSubmission(ctx, s.pool, id, engage.ErrNoSubmission, scanSubmission, text, workspaceID, id)
}

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
	ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.SubmissionRecord) bool,
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
		count := func(s engage.SubmissionRecord) bool {
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
	ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.SubmissionRecord) bool,
) (rest.End, error) {
	const whose = "tenant_id = $1 and form_id = $2"
	const changed = whose + " and finished_at is not null"
	c := changesSQL{
		table:     "resource.submissions",
		columns:   submissionColumns,
		created:   whose + inMonths(r.UpdatedSince, time.Time{}),
		changedAt: "finished_at",
		updatedAt: "coalesce(finished_at, created_at)",
		since:     "$3",
		limit:     "$4",
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
		end.More, err = takeRows(rows, r.Limit, func(row pgx.CollectableRow) (engage.SubmissionRecord, error) {
			taken = true
			return submissionOf(row, &end.Until)
		}, take)
		return end, outcome(err)
	}
	c.filter, c.changed = filter+" and not "+endedLate, changed+inMonths(r.UpdatedSince.Add(-lateAfter), time.Time{})
	end, err := read()
	if err != nil || taken {
		return end, err
	}
	var late bool
	if err := e.pool.QueryRow(ctx, "select "+endedLate, args[:3]...).Scan(&late); err != nil || !late {
		return end, outcome(err)
	}
	c.filter, c.changed = filter, changed
	return read()
}
