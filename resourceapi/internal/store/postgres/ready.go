package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/migrate"
	"github.com/almonerhq/almoner/shared/standing"
)

// Ready says whether Postgres answers, within a second, and has every migration that this program knows, and of
// authserver's those that it depends on. Once it had, it is not asked again for them: migrations go forward only.
func (s *Store) Ready(ctx context.Context) error {
	if s.migrated.Load() {
		return s.Answers(ctx)
	}
	all, err := schema()
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	missing, err := all.Missing(ctx, s.probe)
	if err != nil {
		return unready(err)
	}
	queue, err := s.jobsMissing(ctx)
	if err != nil {
		return unready(err)
	}
	missing = append(missing, queue...)
	var asked bool
	if err := s.probe.QueryRow(ctx, "select to_regprocedure($1) is not null", standing.Function).Scan(&asked); err != nil {
		return unready(err)
	}
	if !asked {
		missing = append(missing, "authserver's")
	}
	if len(missing) > 0 {
		return unready(fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", ")))
	}
	s.migrated.Store(true)
	return nil
}

// unready is a 503 whatever the cause: that a table of migrations is not there, or may not be read, passes once
// somebody migrates.
func unready(cause error) error {
	if unavailable(cause) {
		return outcome(cause)
	}
	refusal := apierr.New(apierr.Unavailable, "This process waits for its database to be migrated.")
	refusal.Cause = cause
	return refusal
}

// jobsMissing are the job queue's own migrations that the database has not.
func (s *Store) jobsMissing(ctx context.Context) ([]string, error) {
	migrator, err := rivermigrate.New(
		s.JobDriver(),
		&rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)},
	)
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
		known = append(
			known,
			migrate.Version{Number: int64(version.Version), Name: fmt.Sprintf("river %d", version.Version)},
		)
	}
	return migrate.Compare(known, applied).Missing, nil
}
