package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
)

// foreignKeyViolation is the SQLSTATE of a row whose referenced row is gone.
const foreignKeyViolation = "23503"

// maxCounted bounds the count of a workspace's waiting submissions: a higher count makes no difference to a Queue.
const maxCounted = 500

// Accept implements engage.Writer. It adds the submission and its job in one transaction.
func (w *engageWriting) Accept(ctx context.Context, s engage.Submission) error {
	var waiting int
	err := w.tx.QueryRow(
		ctx,
		`
		insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select $1, $2, $3, $4, $5, $6, $7, resource.next_moment($2, $8)
		returning (select count(*) from (
			select from resource.submissions where tenant_id = $2 and status = 'accepted' limit $9) w)`,
		s.ID,
		s.WorkspaceID,
		s.Form,
		s.Token,
		s.Answers,
		s.Consents,
		s.Trapped,
		submissionsList(s.Form),
		maxCounted,
	).Scan(&waiting)
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.ConstraintName == "submissions_token" {
		return engage.ErrTokenUsed
	}
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == foreignKeyViolation {
		return engage.ErrNotFound // the form was erased meanwhile
	}
	if err != nil {
		return fmt.Errorf("keep a submission: %w", err)
	}
	if err := w.queue.Add(ctx, w.tx, s.ID, waiting); err != nil {
		return fmt.Errorf("queue a submission: %w", err)
	}
	return nil
}

// statusColumns are the columns for the status of a submission.
const statusColumns = "s.id, s.form_id, s.status, s.reasons"

// SubmissionStatus reads the status of a submission. It returns engage.ErrNotFound.
func (e *Engage) SubmissionStatus(ctx context.Context, id uuid.UUID) (engage.Submission, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var s engage.Submission
	err := e.pool.QueryRow(ctx, "select "+statusColumns+" from resource.submissions s where s.id = $1", id).
		Scan(&s.ID, &s.Form, &s.Status, &s.Reasons)
	if errors.Is(err, pgx.ErrNoRows) {
		return engage.Submission{}, engage.ErrNotFound
	}
	return s, outcome(err)
}

const submissionColumns = "id, form_id, status, reasons, answers, consents, supporter_id, created_at, finished_at"

func submissionOf(row pgx.CollectableRow, further ...any) (engage.Submission, error) {
	var s engage.Submission
	columns := []any{
		&s.ID,
		&s.Form,
		&s.Status,
		&s.Reasons,
		(*[]byte)(&s.StoredAnswers),
		&s.Consents,
		&s.Supporter,
		&s.CreatedAt,
		&s.FinishedAt,
	}
	err := row.Scan(append(columns, further...)...)
	return s, err
}

// Submissions passes one page of a form's submissions, newest first, to take until it returns false.
func (e *Engage) Submissions(
	ctx context.Context,
	form uuid.UUID,
	r list.Range,
	take func(engage.Submission) bool,
) (list.End, error) {
	if !r.UpdatedSince.IsZero() {
		return e.changedSubmissions(ctx, form, r, take)
	}
	text := "select " + submissionColumns + " from resource.submissions s where s.form_id = $1"
	scan := func(row pgx.CollectableRow) (engage.Submission, error) { return submissionOf(row) }
	return readRange(ctx, e.pool, text, "s", form, r, scan, take)
}

// Process finishes a submission in one transaction: if the process stops at any point, either nothing or everything
// has happened, and a second run changes nothing (E5).
func (e *Engage) Process(ctx context.Context, id uuid.UUID) error {
	return e.end(ctx, id, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return process(ctx, tx, id) })
	})
}

// Reject rejects a submission that cannot be processed. It leaves a finished submission unchanged.
func (e *Engage) Reject(ctx context.Context, id uuid.UUID, reason string) error {
	return e.end(ctx, id, func(ctx context.Context) error { return reject(ctx, e.pool, id, reason) })
}

// end runs work, which finishes the submission, in a turn of the submission's workspace: submissions of a workspace
// wait for each other in Postgres, as its writes do.
func (e *Engage) end(ctx context.Context, id uuid.UUID, work func(context.Context) error) error {
	ctx, cancel := bounded(ctx, workPatience)
	defer cancel()
	var workspaceID uuid.UUID
	err := e.pool.QueryRow(ctx, "select tenant_id from resource.submissions where id = $1 and status = 'accepted'", id).
		Scan(&workspaceID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // already finished by another run
	case err != nil:
		return outcome(fmt.Errorf("find the workspace of a submission: %w", err))
	}
	return inTurn(ctx, e.turns, workspaceID, func() error { return work(ctx) })
}

func process(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	s := engage.Submission{ID: id}
	var fields []engage.Field
	row := tx.QueryRow(ctx, `
		select s.tenant_id, s.form_id, s.answers, s.trapped, f.fields
		from resource.submissions s join resource.forms f on f.id = s.form_id
		where s.id = $1 and s.status = 'accepted' for update of s`, id)
	err := row.Scan(&s.WorkspaceID, &s.Form, &s.Answers, &s.Trapped, &fields)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // already finished by another run
	}
	if err != nil {
		return fmt.Errorf("take a submission: %w", err)
	}
	if s.Trapped {
		return reject(ctx, tx, id, engage.ReasonTrapped)
	}
	supporter, err := ensureSupporter(ctx, tx, s.WorkspaceID, engage.SupporterOf(fields, s.Answers))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		update resource.submissions
		set status = 'processed', supporter_id = $2, finished_at = resource.next_moment($3, $4)
		where id = $1`, id, supporter, s.WorkspaceID, submissionsList(s.Form))
	if err != nil {
		return fmt.Errorf("finish a submission: %w", err)
	}
	return nil
}

type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func reject(ctx context.Context, db executor, id uuid.UUID, reason string) error {
	_, err := db.Exec(ctx, `
		with this as materialized (
			select id, tenant_id, form_id from resource.submissions where id = $1 and status = 'accepted' for update)
		update resource.submissions s
		set status = 'rejected', reasons = $2, finished_at = resource.next_moment(this.tenant_id, this.form_id::text)
		from this where s.id = this.id`, id, []string{reason})
	if err != nil {
		return fmt.Errorf("reject a submission: %w", err)
	}
	return nil
}
