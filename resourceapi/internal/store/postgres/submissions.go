package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/rest"
)

// SQLSTATE codes: a referenced row does not exist, and a unique value is already used.
const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
)

// maxCounted bounds the count of a workspace's waiting submissions: a higher count makes no difference to a Queue, nor
// do submissions that were accepted in an earlier month.
const maxCounted = 500

// Accept implements engage.Writer. It adds the submission and its job in one transaction.
func (w *writing) Accept(ctx context.Context, s engage.Submission) error {
	t, waiting := w.transaction(ctx), 0
	t.row("count the waiting submissions", `select count(*) from (
		select 1 from resource.submissions where tenant_id = $1 and status = 'accepted'`+
		inMonths(time.Now().Add(-maxClockSkew), time.Now().Add(maxClockSkew))+" limit $2) w",
		s.WorkspaceID, maxCounted).read(&waiting)
	at := t.nextMoment(s.WorkspaceID, s.Form.String(), 1)
	if t.err != nil {
		return t.err
	}
	t.exec("store a submission", `
		insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		s.ID, s.WorkspaceID, s.Form, s.Token, s.Answers, s.Consents, s.Trapped, at)
	switch {
	case refusedBy(t.err, uniqueViolation, "submissions"): // the id is new, so only the token can violate a unique key
		return engage.ErrTokenUsed
	case refusedBy(t.err, foreignKeyViolation, "submissions"):
		return engage.ErrNotFound // the form was erased meanwhile
	case t.err != nil:
		return t.err
	}
	t.fail("queue a submission", w.queue.Add(ctx, w.tx, s.WorkspaceID, s.ID, waiting))
	return t.err
}

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

// Process finishes a submission in one transaction: if the process stops at any point, either nothing or everything
// has happened, and a second run changes nothing (E5). If workspaceID is zero, as in a job of an earlier release,
// Process searches all workspaces.
func (e *Engage) Process(ctx context.Context, workspaceID, id uuid.UUID) error {
	return e.end(ctx, workspaceID, id, (*transaction).process)
}

// Reject rejects a submission that cannot be processed. It does not read the answers, which may be the reason. It
// leaves a finished submission unchanged. workspaceID is as for Process.
func (e *Engage) Reject(ctx context.Context, workspaceID, id uuid.UUID, reason string) error {
	return e.end(ctx, workspaceID, id, func(t *transaction, workspaceID, id uuid.UUID) {
		if s := t.takeSubmission(workspaceID, id, " for update"); s != nil {
			t.finish(s, engage.Rejected, nil, reason)
		}
	})
}

// end runs work, which finishes the submission, in a transaction and in a turn of the submission's workspace, because
// submissions and writes of one workspace wait for each other in Postgres.
func (e *Engage) end(
	ctx context.Context, workspaceID, id uuid.UUID, work func(t *transaction, workspaceID, id uuid.UUID),
) error {
	ctx, cancel := bounded(ctx, workTimeout)
	defer cancel()
	if workspaceID == uuid.Nil {
		found, err := optional(oneSubmission(ctx, e.pool, id, pgx.ErrNoRows, pgx.RowTo[uuid.UUID],
			"select tenant_id from resource.submissions where id = $1 and status = 'accepted'", id))
		if err != nil {
			return fmt.Errorf("find the workspace of a submission: %w", err)
		}
		if found == nil {
			return nil // already finished by another run
		}
		workspaceID = *found
	}
	return e.inTurn(ctx, workspaceID, func() error {
		return inTransaction(ctx, e.pool, func(t *transaction) { work(t, workspaceID, id) })
	})
}

// takeSubmission reads a waiting submission, with the lock, but does not parse its answers. It returns nil if another
// run has finished it, or if it is being erased.
func (t *transaction) takeSubmission(workspaceID, id uuid.UUID, lock string) *engage.Submission {
	s := &engage.Submission{ID: id, WorkspaceID: workspaceID}
	for _, months := range monthsOf(id) {
		if t.row("take a submission", `select form_id, created_at, trapped, answers from resource.submissions
			where tenant_id = $1 and id = $2 and status = 'accepted'`+months+notErased+lock, workspaceID, id).
			find(&s.Form, &s.CreatedAt, &s.Trapped, (*[]byte)(&s.StoredAnswers)) {
			return s
		}
	}
	return nil
}

func (t *transaction) process(workspaceID, id uuid.UUID) {
	// The sender's address is locked before the submission, as an erasure does. Answers and fields never change.
	s := t.takeSubmission(workspaceID, id, "")
	if s == nil {
		return
	}
	sender := t.senderOf(s)
	t.lockAddress(workspaceID, sender.Email)
	if s = t.takeSubmission(workspaceID, id, " for update"); s == nil {
		return
	}
	if s.Trapped {
		t.finish(s, engage.Rejected, nil, engage.ReasonTrapped)
		return
	}
	supporter := t.ensureSupporter(workspaceID, sender)
	t.finish(s, engage.Processed, &supporter)
}

// senderOf finds the sender in the answers of a submission. A trapped one has none.
func (t *transaction) senderOf(s *engage.Submission) (sender engage.Supporter) {
	if s.Trapped {
		return sender
	}
	t.fail("read the answers of a submission", json.Unmarshal(s.StoredAnswers, &s.Answers))
	var fields []engage.Field
	t.row("read the fields of a form", "select fields from resource.forms where tenant_id = $1 and id = $2",
		s.WorkspaceID, s.Form).read(&fields)
	return engage.SupporterOf(fields, s.Answers)
}

// ensureSupporter returns the supporter of a submission. If the e-mail address is known, it returns the existing
// supporter unchanged: the sender has not proved to be that person (E6).
func (t *transaction) ensureSupporter(workspaceID uuid.UUID, s engage.Supporter) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	added := t.exec("add a supporter", `
		insert into resource.supporters (id, tenant_id, email, phone, name, canonical)
		values ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), true)
		on conflict (tenant_id, email) do nothing`,
		id, workspaceID, s.Email, s.Phone, s.Name)
	if added == 0 {
		t.row("find a supporter", "select id from resource.supporters where tenant_id = $1 and email = $2",
			workspaceID, s.Email).read(&id)
	}
	return id
}

// finish ends a submission, which has no supporter and no reasons yet.
func (t *transaction) finish(s *engage.Submission, status engage.Status, supporter *uuid.UUID, reasons ...string) {
	at := t.nextMoment(s.WorkspaceID, s.Form.String(), 1)
	t.exec("finish a submission", `
		update resource.submissions set status = $4, supporter_id = $5, reasons = $6, finished_at = $7
		where tenant_id = $1 and id = $2 and created_at = $3`+inMonths(s.CreatedAt, s.CreatedAt),
		s.WorkspaceID, s.ID, s.CreatedAt, string(status), supporter, append([]string{}, reasons...), at)
}

// JobSchema is the schema of the job queue's tables.
const JobSchema = "river"

// A Queue adds the job of a submission within a transaction. waiting is how many submissions of the workspace already
// wait, counted up to a bound.
type Queue interface {
	Add(ctx context.Context, tx pgx.Tx, workspaceID, submission uuid.UUID, waiting int) error
}

// Accepted returns the workspaces of the oldest submissions that have waited for at least the given time, by the ids of
// the submissions. It returns at most limit of them.
func (e *Engage) Accepted(ctx context.Context, waiting time.Duration, limit int) (map[uuid.UUID]uuid.UUID, error) {
	return e.workspacesByID(ctx, `
		select id, tenant_id from resource.submissions
		where status = 'accepted' and created_at <= now() - $1::interval order by created_at limit $2`, waiting, limit)
}

// workspacesByID runs a statement that returns ids of records and of their workspaces.
func (s *Store) workspacesByID(ctx context.Context, text string, args ...any) (map[uuid.UUID]uuid.UUID, error) {
	rows, _ := s.pool.Query(ctx, text, args...) // the rows have the error
	found := map[uuid.UUID]uuid.UUID{}
	var id, workspaceID uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{&id, &workspaceID}, func() error {
		found[id] = workspaceID
		return nil
	})
	return found, outcome(err)
}

// JobDriver lets the job queue use the store's connections.
func (s *Store) JobDriver() *riverpgxv5.Driver { return riverpgxv5.New(s.pool.Pool) }

// Jobs counts the unfinished jobs of submissions by state and returns how long the oldest job that is not running has
// waited.
func (s *Store) Jobs(ctx context.Context) (map[string]int, time.Duration, error) {
	rows, _ := s.pool.Query(ctx, `select state::text, count(*)::int,
	extract(epoch from coalesce(now() - min(scheduled_at) filter (where state <> 'running'), '0'))::float8
from river.river_job where state in ('available', 'running', 'retryable', 'scheduled') and queue = 'default'
group by state`) // the rows have the error
	byState, oldest := map[string]int{}, 0.0
	var state string
	var count int
	var seconds float64
	_, err := pgx.ForEachRow(rows, []any{&state, &count, &seconds}, func() error {
		byState[state], oldest = count, max(oldest, seconds) // negative for a job scheduled in the future
		return nil
	})
	return byState, time.Duration(oldest * float64(time.Second)), outcome(err)
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
