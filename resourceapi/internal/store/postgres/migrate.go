package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
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
	"account.claim_webhooks(uuid[], interval, integer, integer)", // the last one of the migrations of webhooks
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
	missing, err := schema.Missing(ctx, s.probe)
	if err != nil {
		return notReady(err)
	}
	queue, err := jobState(ctx, s.probe)
	if err != nil {
		return notReady(err)
	}
	missing = append(missing, queue.Missing...)
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

//go:embed migrations/*.sql
var migrations embed.FS

var schema = migrate.Migrations{Files: migrations, Folder: "migrations", Table: "goose_resourceapi"}

// Migrate applies the missing migrations to the database of url, as its owner, and returns their names. The
// authorization server's migrations must have run before: they create the roles.
func Migrate(ctx context.Context, url string) ([]string, error) {
	applied, err := schema.Up(ctx, url)
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// Look returns how the schema, including the job queue's, differs from what this program needs.
func Look(ctx context.Context, url string) (migrate.State, error) {
	ours, err := schema.Look(ctx, url)
	if err != nil {
		return migrate.State{}, err
	}
	var queue migrate.State
	err = migrate.AsOwner(ctx, url, "", func(owner *migrate.Owner) {
		queue, err = jobState(ctx, owner)
		if fault, ok := errors.AsType[*pgconn.PgError](err); !ok || fault.Code != undefinedTable {
			owner.Fail(err) // otherwise no migration is applied
		}
	})
	return ours.Add(queue), err
}

// undefinedTable is the SQLSTATE of a table that does not exist.
const undefinedTable = "42P01"

// jobState returns how the job queue's tables differ from what this program needs.
func jobState(ctx context.Context, db querier) (migrate.State, error) {
	migrator, err := jobMigrator(nil)
	if err != nil {
		return migrate.State{}, err
	}
	var known []migrate.Version
	for _, version := range migrator.AllVersions() {
		known = append(known, migrate.Version{
			Number: int64(version.Version),
			Name:   fmt.Sprintf("river %d %s", version.Version, version.Name),
		})
	}
	applied, err := allRows(ctx, db, pgx.RowTo[int64], "select version from river.river_migration where line = 'main'")
	if err != nil {
		err = fmt.Errorf("look at the job queue's tables: %w", err)
	}
	return migrate.Compare(known, applied), err
}

// jobMigrator returns a migrator of the job queue's tables. It needs no pool to list the migrations.
func jobMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(pool),
		&rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)})
}

// jobsLock is an arbitrary number that all migrating processes share.
const jobsLock = 0x72697665

// MigrateJobs applies the job queue's own migrations, in a separate schema, and grants the service access. It must
// run after Migrate; url must be the database owner's. Several processes may call it at once; one does the work.
func MigrateJobs(ctx context.Context, url string) error {
	return migrate.AsOwner(ctx, url, "migrate the job queue", func(owner *migrate.Owner) {
		owner.Do(
			"set lock_timeout = '5min'", // only other migrating processes wait
			fmt.Sprintf("select pg_advisory_lock(%d)", jobsLock),
			"create schema if not exists river",
		)
		if owner.Err() == nil {
			owner.Fail(migrateJobs(ctx, url, owner.Config()))
		}
		owner.Do(
			"grant usage on schema river to almoner_resourceapi",
			"grant select, insert, update, delete on all tables in schema river to almoner_resourceapi",
			"grant usage, select on all sequences in schema river to almoner_resourceapi",
		)
	})
}

// migrateJobs applies the job queue's migrations on connections of their own.
func migrateJobs(ctx context.Context, url string, connection *pgx.ConnConfig) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return migrate.ErrURL
	}
	config.ConnConfig = connection
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := jobMigrator(pool)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	return err
}

// distributionJSON says which tables are distributed, and how, as a migrate.Distribution.
//
//go:embed distribution.json
var distributionJSON []byte

// Distribute distributes the records by workspace among the nodes of a Citus cluster and reports each step to out. It
// connects as the owner of the database. The tables of authserver must already be distributed. Imports and jobs stay on
// the first node.
func Distribute(ctx context.Context, url string, out io.Writer) error {
	return migrate.Distribute(ctx, url, distributionJSON, out)
}
