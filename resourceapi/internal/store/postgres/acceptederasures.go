package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// An erasure of many submissions is accepted in one transaction, after which nothing of it can be read: a form or a
// supporter has erased_at, and every statement that reads submissions has the condition notErased. A worker then
// deletes the submissions in batches, each in a transaction of its own that counts them in the erasure's row, and the
// form or the supporter with the last batch. If a worker stops, another one continues, and the erasure is
// counted and recorded once.

const (
	maxErasures   = 20    // of a workspace that are not finished; each read of submissions leaves out all of them
	erasedAtOnce  = 500   // submissions of a batch
	comparedOnce  = 2_000 // submissions of a batch that are compared with an address
	erasuresTried = 8     // erasures that a worker looks at to find one that no other worker has
)

// keepErasures is how long the status of a finished erasure can be read (contract, section 6a).
const keepErasures = 30 * 24 * time.Hour

// notErased is the condition, preceded by "and", that a submission of the workspace $1 is in no running erasure.
var notErased = `
	and not array[form_id, supporter_id] && array(
		select unnest(running.subjects) from resource.erasures running where running.tenant_id = $1
		and running.status = 'accepted')
	and (supporter_id is not null or not exists (
		select from resource.erasures running where running.tenant_id = $1 and running.status = 'accepted'
		and running.accepted_at >= created_at and ` +
	hasAddress("answers", "running.addresses") + `))`

// Conditions, with the parameter subjects, for the submissions of a form and of a supporter.
const (
	formSubmissions      = "form_id = any($2)"
	supporterSubmissions = "supporter_id = any($2)"
)

// An erasureRow is an erasure of a form or a supporter, as stored.
type erasureRow struct {
	id, workspaceID uuid.UUID
	kind            string
	subjects        []uuid.UUID // a form, or the supporters of one person
	addresses       []string    // the spellings of the person's address
	by              uuid.UUID
	request         string
	deleted         int
	acceptedAt      time.Time
	searched        uuid.UUID
}

// countUpTo counts the submissions of an erasure, up to one more than a request erases.
func (w *writing) countUpTo(ctx context.Context, which string, e erasureRow) (submissions int, err error) {
	err = w.tx.QueryRow(ctx, `select count(*) from (
		select from resource.submissions where tenant_id = $1 and `+which+` limit $3) counted`,
		e.workspaceID, e.subjects, engage.MaxErasedAtOnce+1).Scan(&submissions)
	if err != nil {
		return 0, fmt.Errorf("count the submissions to erase: %w", err)
	}
	return submissions, nil
}

// acceptErasure stores an erasure for the worker. It returns engage.ErrTooManyErasures.
func (w *writing) acceptErasure(ctx context.Context, e erasureRow) (engage.Erasure, error) {
	e.id = identity.New()
	tag, err := w.tx.Exec(ctx, `
		insert into resource.erasures (tenant_id, id, kind, subjects, addresses, user_id, request_id)
		select $1, $2, $3, $4, $5, $6, $7
		where (select count(*) from (
			select from resource.erasures where tenant_id = $1 and status = 'accepted' limit $8) w) < $8`,
		e.workspaceID, e.id, e.kind, append([]uuid.UUID{}, e.subjects...), e.addresses, e.by, e.request, maxErasures)
	if err != nil {
		return engage.Erasure{}, fmt.Errorf("store an erasure: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return engage.Erasure{}, engage.ErrTooManyErasures
	}
	return engage.Erasure{ID: e.id, Kind: e.kind, Status: engage.Accepted}, nil
}

// Erasure reads an erasure that a worker does, or returns engage.ErrNoErasure.
func (e *Engage) Erasure(ctx context.Context, workspaceID, id uuid.UUID) (engage.Erasure, error) {
	found, err := oneRow(ctx, e.pool, engage.ErrNoErasure, pgx.RowToStructByName[engage.Erasure],
		`select id, kind, status, deleted from resource.erasures where tenant_id = $1 and id = $2
		and (finished_at is null or finished_at > now() - $3::interval)`, workspaceID, id, keepErasures)
	return found, outcome(err)
}

// ProcessErasure deletes a batch of the erasure that has waited longest since its last batch, of all workspaces, and
// reports whether there was one that no other worker has.
func (s *Store) ProcessErasure(ctx context.Context) (found bool, err error) {
	scan := func(row pgx.CollectableRow) (e erasureRow, err error) { return e, row.Scan(&e.workspaceID, &e.id) }
	waiting, err := allRows(ctx, s.pool, scan, `
		select tenant_id, id from resource.erasures
		where status = 'accepted' order by worked_at limit $1`, erasuresTried)
	if err != nil {
		err = fmt.Errorf("find erasures: %w", err)
	}
	ctx, cancel := bounded(ctx, workTimeout)
	defer cancel()
	for i := 0; err == nil && !found && i < len(waiting); i++ {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			found, err = processErasure(ctx, tx, waiting[i])
			return err
		})
		if err != nil {
			err = errors.Join(err, s.postponeErasure(ctx, waiting[i]))
		}
	}
	return found, outcome(err)
}

// postponeErasure puts an erasure whose batch failed behind the others. The time of the batch may be over.
func (s *Store) postponeErasure(ctx context.Context, e erasureRow) error {
	_, err := s.pool.Exec(ctx, "update resource.erasures set worked_at = now() where tenant_id = $1 and id = $2",
		e.workspaceID, e.id)
	return err
}

// processErasure deletes the next batch of an erasure, and ends the erasure with the last one. It returns false if
// another worker has it, or if it has ended.
func processErasure(ctx context.Context, tx pgx.Tx, e erasureRow) (found bool, err error) {
	if _, err := tx.Exec(ctx, "select set_config('statement_timeout', '15s', true)"); err != nil {
		return false, fmt.Errorf("give an erasure its time: %w", err)
	}
	err = tx.QueryRow(ctx, `
		select kind, subjects, addresses, user_id, request_id, deleted, accepted_at, searched_id
		from resource.erasures where tenant_id = $1 and id = $2 and status = 'accepted' for update skip locked`,
		e.workspaceID, e.id).
		Scan(&e.kind, &e.subjects, &e.addresses, &e.by, &e.request, &e.deleted, &e.acceptedAt, &e.searched)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take an erasure: %w", err)
	}
	last, err := e.deleteNext(ctx, tx)
	if err != nil {
		return true, err
	}
	if last {
		if _, err := e.finish(ctx, tx); err != nil {
			return true, err
		}
		_, err = tx.Exec(ctx, `update resource.erasures set status = 'processed', deleted = $3, addresses = null,
			finished_at = now() where tenant_id = $1 and id = $2`, e.workspaceID, e.id, e.deleted)
	} else {
		_, err = tx.Exec(ctx, `update resource.erasures set deleted = $3, searched_id = $4, worked_at = now()
			where tenant_id = $1 and id = $2`, e.workspaceID, e.id, e.deleted, e.searched)
	}
	if err != nil {
		return true, fmt.Errorf("note the progress of an erasure: %w", err)
	}
	return true, nil
}

// deleteNext deletes the next batch and reports whether nothing is left. It locks the form or the supporters, so that
// no submission is added to it meanwhile.
func (e *erasureRow) deleteNext(ctx context.Context, tx pgx.Tx) (last bool, err error) {
	table, which := "resource.supporters", supporterSubmissions
	if e.kind == engage.ErasedForm {
		table, which = "resource.forms", formSubmissions
	}
	_, err = tx.Exec(ctx, "select from "+table+" where tenant_id = $1 and id = any($2) order by id for update",
		e.workspaceID, e.subjects)
	if err != nil {
		return false, fmt.Errorf("lock what is erased: %w", err)
	}
	deleted, err := e.deleteBatch(ctx, tx, which, erasedAtOnce)
	if err != nil {
		return false, err
	}
	if e.deleted += deleted; deleted == erasedAtOnce || len(e.addresses) == 0 {
		return deleted < erasedAtOnce, nil
	}
	return e.deleteWithAddress(ctx, tx)
}

// deleteBatch deletes up to limit submissions.
func (e *erasureRow) deleteBatch(ctx context.Context, tx pgx.Tx, which string, limit int) (deleted int, err error) {
	tag, err := tx.Exec(ctx, `
		with due as materialized (
			select id, created_at from resource.submissions where tenant_id = $1 and `+which+`
			limit $3 for update
		)
		delete from resource.submissions s using due
		where s.tenant_id = $1 and s.id = due.id and s.created_at = due.created_at`, e.workspaceID, e.subjects, limit)
	if err != nil {
		return 0, fmt.Errorf("erase submissions: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// deleteWithAddress compares the next submissions with the address, and deletes those without a supporter that have it.
// It reports whether it has compared all.
func (e *erasureRow) deleteWithAddress(ctx context.Context, tx pgx.Tx) (last bool, err error) {
	var deleted, compared int
	var searched *uuid.UUID
	err = tx.QueryRow(ctx, `
		with next as materialized (
			select id, created_at, supporter_id, answers from resource.submissions
			where tenant_id = $1 and id > $2 order by id limit $3
		), gone as (
			delete from resource.submissions s using next
			where s.tenant_id = $1 and s.id = next.id and s.created_at = next.created_at and s.supporter_id is null
				and next.supporter_id is null and next.created_at <= $4 and `+hasAddress("next.answers", "$5")+`
			returning 1
		)
		select (select count(*) from gone), (select count(*) from next),
			(select id from next order by id desc limit 1)`,
		e.workspaceID, e.searched, comparedOnce, e.acceptedAt, e.addresses).Scan(&deleted, &compared, &searched)
	if err != nil {
		return false, fmt.Errorf("erase what was sent with an address: %w", err)
	}
	e.deleted += deleted
	if searched != nil {
		e.searched = *searched
	}
	return compared < comparedOnce, nil
}

// finish deletes the form or the supporters, of which no submission is left, and records the erasure.
func (e *erasureRow) finish(ctx context.Context, tx pgx.Tx) (engage.Erasure, error) {
	table := "resource.supporters"
	if e.kind == engage.ErasedForm {
		table = "resource.forms"
	}
	_, err := tx.Exec(ctx, "delete from "+table+" where tenant_id = $1 and id = any($2)", e.workspaceID, e.subjects)
	if err != nil {
		return engage.Erasure{}, fmt.Errorf("erase a %s: %w", e.kind, err)
	}
	subject := uuid.Nil // of an address without a supporter
	if len(e.subjects) > 0 {
		subject = e.subjects[0]
	}
	return engage.Erasure{Kind: e.kind, Status: engage.Processed, Deleted: e.deleted},
		recordErasure(ctx, tx, e.workspaceID, e.by, e.kind, subject, e.deleted, e.request)
}
