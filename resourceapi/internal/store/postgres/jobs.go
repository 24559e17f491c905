package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/almonerhq/almoner/shared/database/migrate"
)

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

// jobMigrator returns a migrator and its connections, which the caller must close.
func jobMigrator(ctx context.Context, url string) (*pgxpool.Pool, *rivermigrate.Migrator[pgx.Tx], error) {
	connection, err := migrate.Config(url)
	if err != nil {
		return nil, nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, migrate.ErrURL
	}
	config.ConnConfig.RuntimeParams = connection.RuntimeParams
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare to migrate the job queue: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool),
		&rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("prepare to migrate the job queue: %w", err)
	}
	return pool, migrator, nil
}

// lookAtJobs returns how the job queue's tables differ from what this program needs.
func lookAtJobs(ctx context.Context, url string) (migrate.State, error) {
	pool, migrator, err := jobMigrator(ctx, url)
	if err != nil {
		return migrate.State{}, err
	}
	defer pool.Close()
	existing, err := migrator.ExistingVersions(ctx)
	if err != nil {
		return migrate.State{}, fmt.Errorf("look at the job queue's tables: %w", err)
	}
	var known []migrate.Version
	for _, version := range migrator.AllVersions() {
		known = append(known, migrate.Version{
			Number: int64(version.Version),
			Name:   fmt.Sprintf("river %d %s", version.Version, version.Name),
		})
	}
	var applied []int64
	for _, version := range existing {
		applied = append(applied, int64(version.Version))
	}
	return migrate.Compare(known, applied), nil
}

// MigrateJobs applies the job queue's own migrations, in a separate schema, and grants the service access. It must
// run after Migrate; url must be the database owner's. Several processes may call it at once; one does the work.
func MigrateJobs(ctx context.Context, url string) error {
	pool, migrator, err := jobMigrator(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	one, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
	}
	defer one.Release()
	// lock is an arbitrary number that all migrating processes share.
	const lock = 0x72697665
	// only other migrating processes wait
	if _, err := one.Exec(ctx, "set lock_timeout = '5min'"); err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
	}
	if _, err := one.Exec(ctx, "select pg_advisory_lock($1)", lock); err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
	}
	defer func() { _, _ = one.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", lock) }()
	if _, err := one.Exec(ctx, "create schema if not exists river"); err != nil {
		return fmt.Errorf("make the job queue's schema: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the job queue: %w", migrate.Explain(err))
	}
	for _, right := range []string{
		"usage on schema river",
		"select, insert, update, delete on all tables in schema river",
		"usage, select on all sequences in schema river",
	} {
		if _, err := one.Exec(ctx, "grant "+right+" to almoner_resourceapi"); err != nil {
			return fmt.Errorf("let the service use the job queue: %w", err)
		}
	}
	return nil
}

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
