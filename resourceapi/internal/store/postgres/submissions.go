package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// Accept is engage.Writer's: the submission and its job are there together, or neither is.
func (w *engageWriting) Accept(ctx context.Context, s engage.Submission) error {
	_, err := w.tx.Exec(ctx, `
		insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, $4, $5, $6, $7)`,
		s.ID, s.Tenant, s.Form, s.Token, s.Answers, s.Consents, s.Trapped)
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.ConstraintName == "submissions_token" {
		return engage.ErrTokenUsed
	}
	if err != nil {
		return fmt.Errorf("keep a submission: %w", err)
	}
	if err := w.queue.Add(ctx, w.tx, s.ID); err != nil {
		return fmt.Errorf("queue a submission: %w", err)
	}
	return nil
}

// statusColumns are what the status of a submission is told from.
const statusColumns = "s.id, s.form_id, s.status, s.reasons"

// SubmissionStatus reads how far a submission is. It returns engage.ErrNotFound.
func (e *Engage) SubmissionStatus(ctx context.Context, id uuid.UUID) (engage.Submission, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var s engage.Submission
	err := e.pool.QueryRow(ctx, "select "+statusColumns+" from resource.submissions s where s.id = $1", id).Scan(&s.ID, &s.Form, &s.Status, &s.Reasons)
	if errors.Is(err, pgx.ErrNoRows) {
		return engage.Submission{}, engage.ErrNotFound
	}
	return s, outcome(err)
}

// Submissions hands over one page of a form's submissions, newest first, until take has no room, and says whether more follow.
func (e *Engage) Submissions(ctx context.Context, form uuid.UUID, r engage.Range, take func(engage.Submission) bool) (more bool, err error) {
	text := "select " + statusColumns + ", s.answers, s.consents, s.supporter_id, s.created_at, s.finished_at from resource.submissions s where s.form_id = $1"
	return readRange(ctx, e.pool, text, "s", form, r, func(row pgx.CollectableRow) (engage.Submission, error) {
		var s engage.Submission
		err := row.Scan(&s.ID, &s.Form, &s.Status, &s.Reasons, (*[]byte)(&s.Kept), &s.Consents, &s.Supporter, &s.CreatedAt, &s.FinishedAt)
		return s, err
	}, take)
}

// Process brings a submission to its end, in one transaction: whatever stops this process, either nothing has happened
// or all of it has, and a second run finds the end and leaves it (E5).
func (e *Engage) Process(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := bounded(ctx, workPatience)
	defer cancel()
	return outcome(pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		s := engage.Submission{ID: id}
		var fields []engage.Field
		err := tx.QueryRow(ctx, `
			select s.tenant_id, s.answers, s.trapped, f.fields
			from resource.submissions s join resource.forms f on f.id = s.form_id
			where s.id = $1 and s.status = 'accepted' for update of s`, id).Scan(&s.Tenant, &s.Answers, &s.Trapped, &fields)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // another run was here before
		}
		if err != nil {
			return fmt.Errorf("take a submission: %w", err)
		}
		if s.Trapped {
			return reject(ctx, tx, id, engage.ReasonTrapped)
		}
		supporter, err := ensureSupporter(ctx, tx, s.Tenant, engage.SupporterOf(fields, s.Answers))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update resource.submissions set status = 'processed', supporter_id = $2, finished_at = now() where id = $1", id, supporter)
		if err != nil {
			return fmt.Errorf("finish a submission: %w", err)
		}
		return nil
	}))
}

// Reject ends a submission that cannot be processed. One that has its end already is left alone.
func (e *Engage) Reject(ctx context.Context, id uuid.UUID, reason string) error {
	ctx, cancel := bounded(ctx, workPatience)
	defer cancel()
	return outcome(reject(ctx, e.pool, id, reason))
}

type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func reject(ctx context.Context, db executor, id uuid.UUID, reason string) error {
	_, err := db.Exec(ctx, `
		update resource.submissions set status = 'rejected', reasons = $2, finished_at = now()
		where id = $1 and status = 'accepted'`, id, []string{reason})
	if err != nil {
		return fmt.Errorf("reject a submission: %w", err)
	}
	return nil
}
