package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/database/migrate"
)

// accountFunctions are the functions of the authorization server's schema that this program calls.
var accountFunctions = []string{
	standing.Function,
	standing.ProfileFunction,
	"account.record_erasure(uuid, uuid, uuid, text, uuid, integer, text)",
	"account.events_after(uuid, bigint, text[], integer, integer, integer)",
	"account.record_webhook(uuid, uuid, uuid, text, uuid, jsonb, text)",
	"account.webhook_standing(uuid, uuid)", // the last one of the migrations of webhooks
	"account.make_months(text)",
}

// Ready checks whether Postgres responds within a second and has every migration that this program knows, and the
// authorization server's migrations that it depends on. After a success the migrations are not checked again: they
// only go forward. Ready fails without a query while the Watch treats Postgres as silent, because every statement is
// refused then.
func (s *Store) Ready(ctx context.Context) error {
	if s.health.Silent() {
		return outcome(context.DeadlineExceeded)
	}
	if s.migrated.Load() {
		return s.Ping(ctx)
	}
	all, err := schema()
	if err != nil {
		return err
	}
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	missing, err := all.Missing(ctx, s.probe)
	if err != nil {
		return notReady(err)
	}
	queue, err := s.jobsMissing(ctx)
	if err != nil {
		return notReady(err)
	}
	missing = append(missing, queue...)
	var complete bool
	err = s.probe.QueryRow(ctx, "select bool_and(to_regprocedure(f) is not null) from unnest($1::text[]) f",
		accountFunctions).Scan(&complete)
	if err != nil {
		return notReady(err)
	}
	if !complete {
		missing = append(missing, "authserver's")
	}
	if len(missing) > 0 {
		return notReady(fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", ")))
	}
	s.migrated.Store(true)
	return nil
}

// notReady turns any cause into a 503: a table of migrations that is missing or not readable is expected to appear
// once an operator migrates.
func notReady(cause error) error {
	if unavailable(cause) {
		return outcome(cause)
	}
	refusal := apierr.New(apierr.Unavailable, "This process is waiting for the database migration.")
	refusal.Cause = cause
	return refusal
}

// jobsMissing returns the job queue's migrations that are not applied.
func (s *Store) jobsMissing(ctx context.Context) ([]string, error) {
	migrator, err := rivermigrate.New(s.JobDriver(),
		&rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	rows, err := s.probe.Query(ctx, "select version from river.river_migration where line = 'main'")
	if err != nil {
		return nil, err
	}
	applied, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	var known []migrate.Version
	for _, version := range migrator.AllVersions() {
		known = append(known,
			migrate.Version{Number: int64(version.Version), Name: fmt.Sprintf("river %d", version.Version)})
	}
	return migrate.Compare(known, applied).Missing, nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate applies the missing migrations to the database of url, as its owner, and returns their names. The
// authorization server's migrations must have run before: they create the roles.
func Migrate(ctx context.Context, url string) ([]string, error) {
	all, err := schema()
	if err != nil {
		return nil, err
	}
	applied, err := all.Up(ctx, url)
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// Look returns how the schema, including the job queue's, differs from what this program needs.
func Look(ctx context.Context, url string) (migrate.State, error) {
	all, err := schema()
	if err != nil {
		return migrate.State{}, err
	}
	ours, err := all.Look(ctx, url)
	if err != nil {
		return migrate.State{}, err
	}
	queue, err := lookAtJobs(ctx, url)
	return ours.Add(queue), err
}

func schema() (migrate.Migrations, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrate.Migrations{}, fmt.Errorf("read the migrations: %w", err)
	}
	return migrate.Migrations{Files: files, Table: "goose_resourceapi"}, nil
}
