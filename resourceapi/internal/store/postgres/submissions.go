package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
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
	waiting := 0
	err := w.tx.QueryRow(ctx, `select count(*) from (
		select 1 from resource.submissions where tenant_id = $1 and status = 'accepted'`+
		inMonths(time.Now().Add(-maxClockSkew), time.Now().Add(maxClockSkew))+" limit $2) w",
		s.WorkspaceID, maxCounted).Scan(&waiting)
	if err != nil {
		return fmt.Errorf("count the waiting submissions: %w", err)
	}
	at, err := nextMoment(ctx, w.tx, s.WorkspaceID, submissionsList(s.Form), 1)
	if err != nil {
		return err
	}
	_, err = w.tx.Exec(ctx, `
		insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		s.ID, s.WorkspaceID, s.Form, s.Token, s.Answers, s.Consents, s.Trapped, at)
	// The id is new, so only the token can violate a unique key.
	if refusedBy(err, uniqueViolation, "submissions") {
		return engage.ErrTokenUsed
	}
	if refusedBy(err, foreignKeyViolation, "submissions") {
		return engage.ErrNotFound // the form was erased meanwhile
	}
	if err != nil {
		return fmt.Errorf("store a submission: %w", err)
	}
	if err := w.queue.Add(ctx, w.tx, s.WorkspaceID, s.ID, waiting); err != nil {
		return fmt.Errorf("queue a submission: %w", err)
	}
	return nil
}

// statusColumns are the columns for the status of a submission.
const statusColumns = "s.id, s.tenant_id, s.form_id, s.status, s.reasons"

// SubmissionStatus reads the status of a submission, or returns engage.ErrNotFound. If workspaceID is zero, as in a
// status token of an earlier release, it searches all workspaces.
func (e *Engage) SubmissionStatus(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error) {
	text, args := "select "+statusColumns+" from resource.submissions s where s.tenant_id = $1 and s.id = $2"+notErased,
		[]any{workspaceID, id}
	if workspaceID == uuid.Nil {
		text, args = "select "+statusColumns+" from resource.submissions s where s.id = $1", []any{id}
	}
	scan := func(row pgx.CollectableRow) (s engage.Submission, err error) {
		return s, row.Scan(&s.ID, &s.WorkspaceID, &s.Form, &s.Status, &s.Reasons)
	}
	s, err := byID(id, engage.ErrNotFound, func(months string) (engage.Submission, error) {
		return oneRow(ctx, e.pool, engage.ErrNotFound, scan, text+months, args...)
	})
	return s, outcome(err)
}

const submissionColumns = "id, form_id, status, reasons, answers, consents, supporter_id, created_at, finished_at"

func scanSubmission(row pgx.CollectableRow) (engage.Submission, error) { return submissionOf(row) }

// submissionOf reads a row of submissionColumns followed by further columns.
func submissionOf(row pgx.CollectableRow, further ...any) (engage.Submission, error) {
	var s engage.Submission
	columns := []any{&s.ID, &s.Form, &s.Status, &s.Reasons, (*[]byte)(&s.StoredAnswers), &s.Consents, &s.Supporter,
		&s.CreatedAt, &s.FinishedAt}
	err := row.Scan(append(columns, further...)...)
	return s, err
}

// Process finishes a submission in one transaction: if the process stops at any point, either nothing or everything
// has happened, and a second run changes nothing (E5). If workspaceID is zero, as in a job of an earlier release,
// Process searches all workspaces.
func (e *Engage) Process(ctx context.Context, workspaceID, id uuid.UUID) error {
	return e.end(ctx, workspaceID, id, func(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) error {
		return process(ctx, tx, workspaceID, id)
	})
}

// Reject rejects a submission that cannot be processed. It does not read the answers, which may be the reason. It
// leaves a finished submission unchanged. workspaceID is as for Process.
func (e *Engage) Reject(ctx context.Context, workspaceID, id uuid.UUID, reason string) error {
	return e.end(ctx, workspaceID, id, func(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) error {
		s, err := takeSubmission(ctx, tx, workspaceID, id)
		if err != nil || s == nil {
			return err
		}
		return finish(ctx, tx, s, engage.Rejected, nil, reason)
	})
}

// end runs work, which finishes the submission, in a transaction and in a turn of the submission's workspace, because
// submissions and writes of one workspace wait for each other in Postgres.
func (e *Engage) end(
	ctx context.Context, workspaceID, id uuid.UUID, work func(context.Context, pgx.Tx, uuid.UUID) error,
) error {
	ctx, cancel := bounded(ctx, workTimeout)
	defer cancel()
	if workspaceID == uuid.Nil {
		var err error
		workspaceID, err = byID(id, pgx.ErrNoRows, func(months string) (workspaceID uuid.UUID, err error) {
			text := "select tenant_id from resource.submissions where id = $1 and status = 'accepted'" + months
			err = e.pool.QueryRow(ctx, text, id).Scan(&workspaceID)
			return workspaceID, err
		})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil // already finished by another run
		case err != nil:
			return outcome(fmt.Errorf("find the workspace of a submission: %w", err))
		}
	}
	return e.inTurn(ctx, workspaceID, func() error {
		return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return work(ctx, tx, workspaceID) })
	})
}

// takeSubmission locks a waiting submission and reads it, but does not parse its answers. It returns nil if another run
// has finished it, or if it is being erased.
func takeSubmission(ctx context.Context, tx pgx.Tx, workspaceID, id uuid.UUID) (*engage.Submission, error) {
	return waitingSubmission(ctx, tx, workspaceID, id, " for update")
}

func waitingSubmission(
	ctx context.Context, tx pgx.Tx, workspaceID, id uuid.UUID, lock string,
) (*engage.Submission, error) {
	s, err := byID(id, pgx.ErrNoRows, func(months string) (*engage.Submission, error) {
		s := &engage.Submission{ID: id, WorkspaceID: workspaceID}
		return s, tx.QueryRow(ctx, `select form_id, created_at, trapped, answers from resource.submissions
			where tenant_id = $1 and id = $2 and status = 'accepted'`+months+notErased+lock, workspaceID, id).
			Scan(&s.Form, &s.CreatedAt, &s.Trapped, (*[]byte)(&s.StoredAnswers))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take a submission: %w", err)
	}
	return s, nil
}

func process(ctx context.Context, tx pgx.Tx, workspaceID, id uuid.UUID) error {
	// The sender's address is locked before the submission, as an erasure does. Answers and fields never change.
	s, err := waitingSubmission(ctx, tx, workspaceID, id, "")
	if err != nil || s == nil {
		return err
	}
	sender, err := senderOf(ctx, tx, s)
	if err != nil {
		return err
	}
	if err := lockAddress(ctx, tx, workspaceID, sender.Email); err != nil {
		return err
	}
	if s, err = takeSubmission(ctx, tx, workspaceID, id); err != nil || s == nil {
		return err
	}
	if s.Trapped {
		return finish(ctx, tx, s, engage.Rejected, nil, engage.ReasonTrapped)
	}
	supporter, err := ensureSupporter(ctx, tx, workspaceID, sender)
	if err != nil {
		return err
	}
	return finish(ctx, tx, s, engage.Processed, &supporter)
}

// senderOf finds the sender in the answers of a submission. A trapped one has none.
func senderOf(ctx context.Context, tx pgx.Tx, s *engage.Submission) (sender engage.Supporter, err error) {
	if s.Trapped {
		return sender, nil
	}
	if err := json.Unmarshal(s.StoredAnswers, &s.Answers); err != nil {
		return sender, fmt.Errorf("read the answers of a submission: %w", err)
	}
	var fields []engage.Field
	err = tx.QueryRow(ctx, "select fields from resource.forms where tenant_id = $1 and id = $2", s.WorkspaceID, s.Form).
		Scan(&fields)
	if err != nil {
		return sender, fmt.Errorf("read the fields of a form: %w", err)
	}
	return engage.SupporterOf(fields, s.Answers), nil
}

// finish ends a submission, which has no supporter and no reasons yet.
func finish(
	ctx context.Context, tx pgx.Tx, s *engage.Submission, status engage.Status, supporter *uuid.UUID,
	reasons ...string,
) error {
	at, err := nextMoment(ctx, tx, s.WorkspaceID, submissionsList(s.Form), 1)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		update resource.submissions set status = $4, supporter_id = $5, reasons = $6, finished_at = $7
		where tenant_id = $1 and id = $2 and created_at = $3`+inMonths(s.CreatedAt, s.CreatedAt),
		s.WorkspaceID, s.ID, s.CreatedAt, string(status), supporter, append([]string{}, reasons...), at)
	if err != nil {
		return fmt.Errorf("finish a submission: %w", err)
	}
	return nil
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
