package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// JobSchema is where the job queue keeps its tables.
const JobSchema = "river"

// A Queue takes the job of a submission into a transaction.
type Queue interface {
	Add(ctx context.Context, tx pgx.Tx, submission uuid.UUID) error
}

// JobDriver lets the job queue use the store's connections.
func (s *Store) JobDriver() *riverpgxv5.Driver { return riverpgxv5.New(s.pool) }

// MigrateJobs brings the job queue's tables, in a schema of their own, to what this version needs, by the queue's own
// migrations, and lets the service use them. It follows Migrate; url is that of the database's owner. Several processes
// may call it at once; one does the work.
func MigrateJobs(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return errors.New("the database URL is not one: postgres://user:password@host:port/database")
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("prepare to migrate the job queue: %w", err)
	}
	one, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
	}
	defer one.Release()
	const lock = 0x72697665 // any number that all migrating processes agree on
	if _, err := one.Exec(ctx, "select pg_advisory_lock($1)", lock); err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
	}
	defer func() { _, _ = one.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", lock) }()
	if _, err := one.Exec(ctx, "create schema if not exists river"); err != nil {
		return fmt.Errorf("make the job queue's schema: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the job queue: %w", err)
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
