package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

const programmeColumns = "id, name, summary, status, starts_on, ends_on, created_at, updated_at, version, " +
	"coalesce(external_id, '') as external_id"

const programmeSQL = "select " + programmeColumns + " from resource.programmes where tenant_id = $1 and id = $2"

func scanProgramme(row pgx.CollectableRow) (programme.Programme, error) { return programmeOf(row) }

// programmeOf reads a row of programmeColumns followed by further columns.
func programmeOf(row pgx.CollectableRow, further ...any) (programme.Programme, error) {
	var p programme.Programme
	var startsOn, endsOn *time.Time
	columns := []any{&p.ID, &p.Name, &p.Summary, &p.Status, &startsOn, &endsOn, &p.CreatedAt, &p.UpdatedAt, &p.Version,
		&p.ExternalID}
	err := row.Scan(append(columns, further...)...)
	p.StartsOn, p.EndsOn = dateOf(startsOn), dateOf(endsOn)
	return p, err
}

func dateOf(t *time.Time) *programme.Date {
	if t == nil {
		return nil
	}
	day := programme.DateOf(*t)
	return &day
}

func timeOf(d *programme.Date) *time.Time {
	if d == nil {
		return nil
	}
	t := d.Time()
	return &t
}

// querier is the common interface of a pool and a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// oneRow runs a statement that returns at most one row. It returns missing if there is none.
func oneRow[T any](
	ctx context.Context, db querier, missing error, scan pgx.RowToFunc[T], text string, args ...any,
) (one T, err error) {
	rows, err := db.Query(ctx, text, args...)
	if err != nil {
		return one, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return one, missing
	}
	return found, err
}

// oneProgramme runs a statement that returns programmeColumns of at most one row.
func oneProgramme(ctx context.Context, db querier, text string, args ...any) (programme.Programme, error) {
	return oneRow(ctx, db, programme.ErrNotFound, scanProgramme, text, args...)
}

// Programme reads a programme. It returns programme.ErrNotFound, also for a programme of another workspace.
func (s *Store) Programme(ctx context.Context, workspaceID, id uuid.UUID) (programme.Programme, error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	p, err := oneProgramme(ctx, s.pool, programmeSQL, workspaceID, id)
	return p, outcome(err)
}

// Create adds a programme whose details were checked.
func (w *writing) Create(ctx context.Context, workspaceID uuid.UUID, d programme.Details) (programme.Programme, error) {
	if err := freeExternalID(ctx, w.tx, workspaceID, d.ExternalID, uuid.Nil); err != nil {
		return programme.Programme{}, err
	}
	at, err := nextMoment(ctx, w.tx, workspaceID, programmesList, 1)
	if err != nil {
		return programme.Programme{}, err
	}
	return oneProgramme(ctx, w.tx, `
		insert into resource.programmes
			(id, tenant_id, name, summary, status, starts_on, ends_on, external_id, created_at, updated_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
		returning `+programmeColumns,
		identity.New(), workspaceID, d.Name, d.Summary, string(d.Status), timeOf(d.StartsOn), timeOf(d.EndsOn),
		textOrNull(d.ExternalID), at)
}

// Replace reads a programme, passes it to edit and stores the result. It locks the row, so that only one of two edits
// of the same version succeeds. If edit fails or changes nothing, nothing is written.
func (w *writing) Replace(
	ctx context.Context, workspaceID, id uuid.UUID, edit func(programme.Programme) (programme.Programme, error),
) (programme.Programme, error) {
	before, err := oneProgramme(ctx, w.tx,
		"select "+programmeColumns+" from resource.programmes where tenant_id = $1 and id = $2 for update", workspaceID,
		id)
	if err != nil {
		return programme.Programme{}, err
	}
	after, err := edit(before)
	if err != nil || after.Same(before) {
		return after, err
	}
	if after.ExternalID != before.ExternalID {
		if err := freeExternalID(ctx, w.tx, workspaceID, after.ExternalID, id); err != nil {
			return programme.Programme{}, err
		}
	}
	at, err := nextMoment(ctx, w.tx, workspaceID, programmesList, 1)
	if err != nil {
		return programme.Programme{}, err
	}
	p, err := oneProgramme(ctx, w.tx, `
		update resource.programmes
		set name = $3, summary = $4, status = $5, starts_on = $6, ends_on = $7,
			external_id = $8, updated_at = $9, version = version + 1
		where tenant_id = $1 and id = $2
		returning `+programmeColumns,
		workspaceID, id, after.Name, after.Summary, string(after.Status), timeOf(after.StartsOn), timeOf(after.EndsOn),
		textOrNull(after.ExternalID), at)
	if err != nil {
		return programme.Programme{}, fmt.Errorf("change a programme: %w", err)
	}
	return p, nil
}

// Records of one list become visible in the order of their times (P3, P6 of package programme; E7 of package engage):
// resource.next_moment locks the list until the transaction ends and returns a time later than every time in it. So
// everything in a transaction that may wait for another transaction (an idempotency key, the row to change, a unique
// value) must come before it, or two transactions may deadlock.
//
// A long import chooses its times before it locks the list, and then checks whether they are the latest
// (imports.go).

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
