package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
)

// ErrForeign means that a database holds other data than our demo, so nothing may be written to it.
var ErrForeign = errors.New("demo data is not written to it")

// Claim marks an empty database as the demo of this installation, or recognises its mark. It precedes the migrations,
// so that an interrupted first start can be continued. Any other database is ErrForeign.
func Claim(ctx context.Context, db *pgx.Conn, s seed.Seed) error {
	var marked bool
	if err := db.QueryRow(ctx, "select to_regclass('demo.installation') is not null").Scan(&marked); err != nil {
		return fmt.Errorf("inspect the database: %w", err)
	}
	if !marked {
		return claimEmpty(ctx, db, s)
	}
	var fingerprint string
	if err := db.QueryRow(ctx, "select fingerprint from demo.installation").Scan(&fingerprint); err != nil {
		return fmt.Errorf("inspect the database: %w", err)
	}
	if fingerprint != s.Fingerprint() {
		return fmt.Errorf(
			"the database %s holds the demo of another .almoner directory, whose secrets are unknown here: bring "+
				"its seed file back, or name an empty database: %w",
			db.Config().Database, ErrForeign)
	}
	return nil
}

func claimEmpty(ctx context.Context, db *pgx.Conn, s seed.Seed) error {
	// Objects of an extension, such as pg_stat_statements, are no data.
	var found string
	err := db.QueryRow(ctx, `
		select n.nspname || '.' || c.relname
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
		  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\_toast%'
		  and not exists (
		    select from pg_depend d
		    where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
		limit 1`).Scan(&found)
	if err == nil {
		return fmt.Errorf(
			"the database %s is neither empty nor marked as Almoner's demo (it contains %s, for example): %w",
			db.Config().Database, found, ErrForeign)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("inspect the database: %w", err)
	}
	return mark(ctx, db, s)
}

func mark(ctx context.Context, db *pgx.Conn, s seed.Seed) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, statement := range []string{
			"create schema demo",
			"create table demo.installation (fingerprint text not null, made_at timestamptz not null default now())",
			"create table demo.parts (name text primary key, made_at timestamptz not null default now())",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("mark the database as a demo: %w", err)
			}
		}
		_, err := tx.Exec(ctx, "insert into demo.installation (fingerprint) values ($1)", s.Fingerprint())
		return err
	})
}

// once creates a part of the demo unless it was created before, so that the user's changes and deletions stay.
func once(ctx context.Context, db *pgx.Conn, part string, put func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "insert into demo.parts (name) values ($1) on conflict do nothing", part)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return put(tx)
	})
	if err != nil {
		return fmt.Errorf("demo data, %s: %w", part, err)
	}
	return nil
}
