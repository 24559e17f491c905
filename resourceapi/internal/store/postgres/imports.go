package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// AcceptImport keeps a file until it is processed.
func (w *writing) AcceptImport(ctx context.Context, tenant, user uuid.UUID, content string) (uuid.UUID, error) {
	id := identity.New()
	_, err := w.tx.Exec(ctx, "insert into resource.imports (id, tenant_id, user_id, content) values ($1, $2, $3, $4)", id, tenant, user, content)
	if err != nil {
		return uuid.Nil, fmt.Errorf("keep an import: %w", err)
	}
	return id, nil
}

// Import reads where an import stands. It returns programme.ErrNotFound, for one of another workspace too.
func (s *Store) Import(ctx context.Context, tenant, id uuid.UUID) (programme.Import, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	i := programme.Import{ID: id}
	err := s.pool.QueryRow(ctx, "select status, imported, errors from resource.imports where tenant_id = $1 and id = $2", tenant, id).
		Scan(&i.Status, &i.Imported, &i.Errors)
	if errors.Is(err, pgx.ErrNoRows) {
		return programme.Import{}, programme.ErrNotFound
	}
	return i, outcome(err)
}

// ProcessImport takes the import that waits longest, if one does, and turns it into programmes or rejects it, in one
// transaction: whatever stops this process, the import is done once or still waits. Other instances take others.
func (s *Store) ProcessImport(ctx context.Context) (found bool, err error) {
	ctx, cancel := bounded(ctx, workPatience)
	defer cancel()
	var id uuid.UUID
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var tenant uuid.UUID
		var content string
		err := tx.QueryRow(ctx, `
			select id, tenant_id, content from resource.imports where status = 'accepted' and try_at <= now()
			order by try_at limit 1 for update skip locked`).Scan(&id, &tenant, &content)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take an import: %w", err)
		}
		found = true
		return processImport(ctx, tx, id, tenant, content)
	})
	if err != nil && found {
		// It is tried again later, behind the others: one that fails each time must not stop them.
		_, later := s.pool.Exec(ctx, "update resource.imports set try_at = now() + interval '30 seconds' where id = $1 and status = 'accepted'", id)
		err = errors.Join(err, later)
	}
	return found, outcome(err)
}

func processImport(ctx context.Context, tx pgx.Tx, id, tenant uuid.UUID, content string) error {
	if _, err := tx.Exec(ctx, "set local statement_timeout = '15s'"); err != nil {
		return fmt.Errorf("give an import its time: %w", err)
	}
	rows, wrong := programme.ReadImport(content)
	status := programme.ImportProcessed
	if len(wrong) > 0 {
		status = programme.ImportRejected
	} else {
		wrong = []programme.RowError{}
	}
	if err := addProgrammes(ctx, tx, tenant, rows); err != nil {
		return fmt.Errorf("add imported programmes: %w", err)
	}
	_, err := tx.Exec(ctx, `
		update resource.imports set status = $2, imported = $3, errors = $4, content = null, finished_at = now() where id = $1`,
		id, string(status), len(rows), wrong)
	if err != nil {
		return fmt.Errorf("finish an import: %w", err)
	}
	return nil
}

// addProgrammes adds all in one statement, whose values have arrived before it begins: the list is locked for as short a
// time as it takes to insert them. Each has a time of its own, the last row the newest.
func addProgrammes(ctx context.Context, tx pgx.Tx, tenant uuid.UUID, all []programme.Details) error {
	if len(all) == 0 {
		return nil
	}
	var (
		ids                     = make([]uuid.UUID, len(all))
		names, summaries, state = make([]string, len(all)), make([]string, len(all)), make([]string, len(all))
		startsOn, endsOn        = make([]*time.Time, len(all)), make([]*time.Time, len(all))
	)
	for i, d := range all {
		ids[i], names[i], summaries[i], state[i] = identity.New(), d.Name, d.Summary, string(d.Status)
		startsOn[i], endsOn[i] = timeOf(d.StartsOn), timeOf(d.EndsOn)
	}
	_, err := tx.Exec(ctx, `
		with moment as materialized (select resource.next_moment($1, $8, $9) as at)
		insert into resource.programmes (id, tenant_id, name, summary, status, starts_on, ends_on, created_at, updated_at)
		select r.id, $1, r.name, r.summary, r.status, r.starts_on, r.ends_on, r.at, r.at from (
			select new.*, moment.at - ($9 - new.place) * interval '1 microsecond' as at
			from moment, unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::date[], $7::date[])
				with ordinality as new (id, name, summary, status, starts_on, ends_on, place)
			order by new.place) r`,
		tenant, ids, names, summaries, state, startsOn, endsOn, programmesList, len(all))
	return err
}
