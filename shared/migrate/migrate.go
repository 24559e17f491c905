// Package migrate answers: is a service's schema the one that its program needs, and how does it become so?
//
// Migrations go forward only. Old and new processes run side by side while a deployment is replaced, so that each
// migration leaves room for the program before it (deploy/README.md, Upgrading); whoever goes back to an older program
// leaves the database as it is. Its rules:
//
//  1. A migration is applied whole or not at all, in its own transaction, and once. One that cannot run in a transaction says
//     so (-- +goose NO TRANSACTION) and can be repeated after any step of it.
//  2. Several processes may migrate at once: one works, the others wait for it, for five minutes at most.
//  3. A migration that waits for a lock makes everybody wait who comes after it. So it gives up after LockTimeout, undone.
//  4. Look changes nothing.
//
// How to write one. While it is applied, and for a while after, the program before it serves on the new schema
// (TestEarlierPrograms… in e2e holds that). So it adds: a column that may be null or has a constant default, a table,
// an index, a right. What is no longer used is dropped, and what is new becomes required, only in a release whose
// predecessor does without. A constraint on a table that may be large is added as not valid and validated by a
// migration of its own. So is an index on one: alone in its file, concurrently,
//
//	-- +goose NO TRANSACTION
//	-- +goose Up
//	drop index concurrently if exists account.grants_by_x; -- what an interrupted try has left, which is not valid
//	create index concurrently grants_by_x on account.grants (x);
//
// Rows are changed in the same file only where there are few. A file that was ever applied is not changed, nor are
// numbers used twice.
//
// The stores of both services call it.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// LockTimeout is how long a migration waits for a table that others use. Requests wait as long behind it, at most.
const LockTimeout = 3 * time.Second

// SQLSTATE codes of PostgreSQL.
const (
	undefinedTable   = "42P01"
	lockNotAvailable = "55P03"
)

// ErrURL takes the place of the library's error, which quotes the URL.
var ErrURL = errors.New("ALMONER_DATABASE_URL cannot be read: it looks like postgres://user:password@host:5432/almoner")

// Migrations are those of one service.
type Migrations struct {
	Files fs.FS  // in goose's format: NNNNN_name.sql
	Table string // remembers what was applied. Each service has its own, as they share a database
}

// Up applies what is missing, as the owner of the database, and returns the names of what it applied.
func (m Migrations) Up(ctx context.Context, url string) ([]string, error) {
	config, err := Config(url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }() // nothing waits in it
	provider, err := m.provider(db)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	var applied []string
	for _, result := range results {
		applied = append(applied, path.Base(result.Source.Path))
	}
	return applied, Explain(err)
}

// Look compares, and changes nothing.
func (m Migrations) Look(ctx context.Context, url string) (State, error) {
	config, err := Config(url)
	if err != nil {
		return State{}, err
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	provider, err := m.provider(db)
	if err != nil {
		return State{}, err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return State{}, err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	rows, _ := connection.Query(
		ctx,
		"select version_id from "+pgx.Identifier{
			m.Table,
		}.Sanitize()+" where is_applied and version_id > 0 order by version_id",
	)
	applied, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if fault, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || fault.Code != undefinedTable) {
		return State{}, err
	}
	var known []Version
	for _, source := range provider.ListSources() {
		known = append(known, Version{source.Version, path.Base(source.Path)})
	}
	return Compare(known, applied), nil
}

func (m Migrations) provider(db *sql.DB) (*goose.Provider, error) {
	const seconds, times = 1, 300
	one, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(seconds, times))
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	provider, err := goose.NewProvider(database.DialectPostgres, db, m.Files,
		goose.WithTableName(m.Table), goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(one))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

// Config is how whoever migrates connects: for no lock does it wait longer than LockTimeout.
func Config(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, ErrURL
	}
	config.RuntimeParams["lock_timeout"] = fmt.Sprint(LockTimeout.Milliseconds())
	config.RuntimeParams["application_name"] = "almoner-migrate"
	return config, nil
}

// Explain says in words what to do where a lock was not to be had.
func Explain(err error) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == lockNotAvailable {
		return fmt.Errorf(
			"a table was in use for longer than %s, and so as not to hold up others this migration was given up, "+
				"undone: run it again: %w",
			LockTimeout,
			err,
		)
	}
	return err
}
