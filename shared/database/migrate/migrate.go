// Package migrate applies and checks the migrations of a service's schema.
//
// Migrations only go forward. Old and new processes run side by side while a deployment is replaced, so each
// migration must be compatible with the previous program (deploy/UPGRADING.md); going back to an
// older program leaves the database as it is. Its rules:
//
//  1. A migration is applied once and atomically, in its own transaction. A migration that cannot run in a transaction
//     says so (-- +goose NO TRANSACTION) and can be repeated after any step of it.
//  2. Several processes may migrate at once: one works, the others wait for it, up to five minutes.
//  3. A migration that waits for a lock blocks every later query. So it is rolled back after a short time, less than
//     requests wait, and tried again. One that creates an index concurrently delays no request: it waits up to
//     LockTimeout.
//  4. Look changes nothing.
//  5. The first migration makes the schema of OldestUpgrade. A database that has an earlier migration and not this one
//     is refused. It also records the earlier numbers, so that the programs of OldestUpgrade find theirs.
//
// How to write a migration. While it is applied, and for a while after, the previous program runs on the new
// schema (TestEarlierPrograms… in e2e checks that). So a migration adds: a column that may be null or has a
// constant default, a table, an index, a right. It drops what is no longer used, and makes new columns
// required, only in a release whose predecessor does not depend on them. A constraint on a table that may be
// large is added as not valid and validated by a separate migration. An index on such a table is created
// concurrently, alone in its file:
//
//	-- +goose NO TRANSACTION
//	-- +goose Up
//	drop index concurrently if exists account.grants_by_x; -- left invalid by an interrupted try
//	create index concurrently grants_by_x on account.grants (x);
//
// Rows are changed in the same file only if there are few. A file that was ever applied must not be changed,
// and numbers must not be reused.
//
// The stores of both services use this package.
package migrate

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/almonerhq/almoner/shared/database/pg"
)

// LockTimeout is how long a migration waits for a table in use if no request waits behind it.
const LockTimeout = 3 * time.Second

// Requests wait behind a migration that waits for a table in use, so it gives up before they do, and is tried again.
const (
	briefLockTimeout = 300 * time.Millisecond
	defaultTryFor    = 10 * time.Second
	betweenTries     = 500 * time.Millisecond
)

// OldestUpgrade is the commit of the oldest release whose installations are upgraded in place.
const OldestUpgrade = "0cfcdfceca13"

// ErrOlder is returned if a database has migrations of a release before OldestUpgrade only.
var ErrOlder = errors.New("the database is older than the release of commit " + OldestUpgrade +
	", the oldest from which this program upgrades: upgrade to that release first (deploy/UPGRADING.md)")

// SQLSTATE codes of PostgreSQL.
const (
	undefinedTable   = "42P01"
	lockNotAvailable = "55P03"
)

// ErrURL replaces the library's error, which quotes the URL.
var ErrURL = errors.New("ALMONER_DATABASE_URL must look like postgres://user:password@host:5432/almoner")

// Migrations are the migrations of one service.
type Migrations struct {
	Files  fs.FS  // in goose's format: NNNNN_name.sql
	Folder string // of the files; "" for the root
	Table  string // records what was applied; one table per service, as they share a database

	// TryFor is the time after which Up no longer retries a migration whose table is in use. 0 means 10 s.
	TryFor time.Duration
}

// Up applies the missing migrations as the owner of the database and returns their names. It retries a migration
// whose table is in use, until TryFor has passed; the last attempt may end later.
func (m Migrations) Up(ctx context.Context, url string) ([]string, error) {
	if _, err := m.Look(ctx, url); err != nil {
		return nil, err
	}
	end := time.Now().Add(cmp.Or(m.TryFor, defaultTryFor))
	const latest = math.MaxInt64
	var applied []string
	for wait, to := briefLockTimeout, int64(latest); ; {
		more, failed, err := m.apply(ctx, url, wait, to)
		applied = append(applied, more...)
		finished := err == nil && to == latest
		retry := isLockTimeout(err) && time.Now().Before(end)
		if finished || err != nil && !retry {
			return applied, Explain(err)
		}
		wait, to = briefLockTimeout, latest
		if retry {
			time.Sleep(betweenTries)
		}
		if retry && m.isConcurrent(failed) {
			wait, to = LockTimeout, failed.Version
		}
	}
}

// apply applies the missing migrations up to a version. If one fails, it returns that one.
func (m Migrations) apply(
	ctx context.Context, url string, wait time.Duration, to int64,
) (applied []string, failed *goose.Source, err error) {
	config, err := Config(url)
	if err != nil {
		return nil, nil, err
	}
	config.RuntimeParams["lock_timeout"] = fmt.Sprint(wait.Milliseconds())
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }() // no transaction is open
	provider, err := m.provider(db)
	if err != nil {
		return nil, nil, err
	}
	results, err := provider.UpTo(ctx, to)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results, failed = partial.Applied, partial.Failed.Source
	}
	for _, result := range results {
		applied = append(applied, path.Base(result.Source.Path))
	}
	return applied, failed, err
}

// isConcurrent reports whether a migration creates an index concurrently. It waits for transactions that began before
// it, but no request waits behind it.
func (m Migrations) isConcurrent(one *goose.Source) bool {
	if one == nil {
		return false
	}
	content, err := fs.ReadFile(m.Files, path.Join(m.Folder, one.Path))
	return err == nil && bytes.Contains(content, []byte(" index concurrently "))
}

// Look compares the schema with the migrations and changes nothing.
func (m Migrations) Look(ctx context.Context, url string) (State, error) {
	known, err := m.known()
	if err != nil {
		return State{}, err
	}
	var applied []int64
	err = AsOwner(ctx, url, "", func(o *Owner) {
		all, err := m.applied(ctx, o)
		if fault, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || fault.Code != undefinedTable) {
			o.Fail(err)
		}
		applied = all
	})
	if err == nil && len(applied) > 0 && !slices.Contains(applied, known[0].Number) {
		err = ErrOlder
	}
	if err != nil {
		return State{}, err
	}
	return Compare(known, applied), nil
}

func (m Migrations) provider(db *sql.DB) (*goose.Provider, error) {
	const seconds, times = 1, 300
	one, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(seconds, times))
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	files, err := fs.Sub(m.Files, cmp.Or(m.Folder, "."))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	provider, err := goose.NewProvider(database.DialectPostgres, db, files,
		goose.WithTableName(m.Table), goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(one))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

// A Command is the command migrate of a service.
type Command struct {
	Schema     string // as the output names it
	State      func() (State, error)
	Up         func() (applied []string, err error)
	Distribute func() error
	// Distributed reports whether tables are distributed (IsDistributed).
	Distributed func() (bool, error)
}

// Check returns the State as an error if the schema differs from what the program needs.
func (c Command) Check() error {
	state, err := c.State()
	if err != nil {
		return err
	}
	return state.Err()
}

// Options are the flags of the command.
type Options struct {
	Check      bool `xor:"what" help:"Change nothing. Exit with 0 if up to date, 3 if migrations are missing, 4 if the database is newer."`
	Distribute bool `xor:"what" help:"Also distribute the tables among the nodes of a Citus cluster, and finish the upgrade (deploy/citus/README.md)."`
	Yes        bool `help:"Accept with --distribute that each request costs PostgreSQL several times as much."`
}

// ErrUnconfirmed is returned by Run for Distribute without Yes.
var ErrUnconfirmed = errors.New("nothing was changed: on Citus a refresh takes 6 to 11 times, and a list 7 to 9 " +
	"times the processor time that it takes on one PostgreSQL (deploy/docs/distributed.md); " +
	"if the data needs several servers nevertheless, run the command again with --yes")

// Run applies the missing migrations and, with Distribute, distributes the tables. With Check, it only runs Check.
func (c Command) Run(options Options, out io.Writer) error {
	if options.Distribute && !options.Yes {
		return ErrUnconfirmed
	}
	var applied []string
	var err error
	if options.Check {
		err = c.Check()
	} else {
		applied, err = c.Up()
	}
	if err != nil {
		return err
	}
	for _, name := range applied {
		if _, err := fmt.Fprintln(out, "applied "+name); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(out, "the "+c.Schema+" schema is up to date")
	if err == nil && options.Distribute {
		return c.Distribute()
	}
	if err != nil || options.Check {
		return err
	}
	distributed, err := c.Distributed()
	if err == nil && distributed {
		_, err = fmt.Fprintln(out, "The tables are distributed by Citus. Now run migrate --distribute --yes: "+
			"until then, requests may fail.")
	}
	return err
}

// Config returns the connection settings for migrations: they wait for a lock up to LockTimeout.
func Config(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, ErrURL
	}
	pg.RequirePrimary(&config.Config)
	config.RuntimeParams["lock_timeout"] = fmt.Sprint(LockTimeout.Milliseconds())
	config.RuntimeParams["application_name"] = "almoner-migrate"
	return config, nil
}

// Explain adds advice to the error of a lock timeout.
func Explain(err error) error {
	if isLockTimeout(err) {
		return fmt.Errorf("a table was in use for too long, so the migration was rolled back: run it again: %w", err)
	}
	return err
}

func isLockTimeout(err error) bool {
	fault, ok := errors.AsType[*pgconn.PgError](err)
	return ok && fault.Code == lockNotAvailable
}

// A Version is the number and the name of a migration.
type Version struct {
	Number int64
	Name   string
}

// A State is how a database differs from what a program needs. It is an error unless nothing differs (Err).
type State struct {
	Missing []string // migrations that the program has and the database has not
	Newer   []int64  // numbers of migrations that the database has and the program does not know
}

// Compare compares what a program knows, in order, with what a database has. Numbers below the first known one are of
// migrations that it replaces.
func Compare(known []Version, applied []int64) State {
	var s State
	for _, version := range known {
		if !slices.Contains(applied, version.Number) {
			s.Missing = append(s.Missing, version.Name)
		}
	}
	for _, number := range applied {
		replaced := len(known) > 0 && number < known[0].Number
		if !replaced && !slices.ContainsFunc(known, func(v Version) bool { return v.Number == number }) {
			s.Newer = append(s.Newer, number)
		}
	}
	return s
}

// Exit statuses of `migrate --check`. 0 is up to date; 1 and 2 are other failures.
const (
	StatusMissing = 3
	StatusNewer   = 4
)

func (s State) Error() string {
	if len(s.Missing) > 0 {
		return fmt.Sprintf("migrations are missing: %s; run migrate", strings.Join(s.Missing, ", "))
	}
	return "the database is newer than this program: it has the unknown migrations " +
		strings.Trim(fmt.Sprint(s.Newer), "[]")
}

// ExitStatus returns the exit status for scripts.
func (s State) ExitStatus() int {
	if len(s.Missing) > 0 {
		return StatusMissing
	}
	return StatusNewer
}

// Err returns s as an error, or nil if nothing differs.
func (s State) Err() error {
	if len(s.Missing)+len(s.Newer) == 0 {
		return nil
	}
	return s
}

// Missing returns the names of the migrations that the database lacks. A newer database lacks none: the
// previous program can run on it.
func (m Migrations) Missing(ctx context.Context, database querier) ([]string, error) {
	known, err := m.known()
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx, database)
	if err != nil {
		return nil, err
	}
	return Compare(known, applied).Missing, nil
}

// A querier queries the database as its owner, or as the service itself, which may read the table of versions.
type querier interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
}

// applied returns the numbers of the migrations that the database has.
func (m Migrations) applied(ctx context.Context, database querier) ([]int64, error) {
	table := pgx.Identifier{m.Table}.Sanitize()
	rows, _ := database.Query(ctx,
		"select version_id from "+table+" where is_applied and version_id > 0 order by version_id")
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// known returns the migrations by their file names: NNNNN_name.sql.
func (m Migrations) known() ([]Version, error) {
	files, err := fs.Glob(m.Files, path.Join(m.Folder, "*.sql"))
	if err != nil {
		return nil, err
	}
	var all []Version
	for _, file := range files {
		name := path.Base(file)
		digits, _, _ := strings.Cut(name, "_")
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the migration %s has no number", name)
		}
		all = append(all, Version{number, name})
	}
	return all, nil
}
