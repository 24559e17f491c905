package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/migrate"
)

// Migrate applies the missing migrations as the owner of the database and returns their names.
func Migrate(ctx context.Context, url credential.Secret) ([]string, error) {
	all, err := schema()
	if err != nil {
		return nil, err
	}
	applied, err := all.Up(ctx, url.Reveal())
	if err != nil {
		return applied, errors.Join(fmt.Errorf("migrate the account schema: %w", err), dropLeftConstraint(ctx, url))
	}
	return applied, nil
}

const (
	constraintIsLeft = `select exists (select from pg_constraint where conname = 'audit_events_earlier'
		and contype = 'c' and conrelid = to_regclass('account.audit_events'))`
	dropTries = 5
)

// dropLeftConstraint drops the constraint that the migration 00253_audit_months leaves on the audit log if it fails
// while another session reads the log. The constraint would refuse every event after the end of the next month.
func dropLeftConstraint(ctx context.Context, url credential.Secret) error {
	config, err := migrate.Config(url.Reveal())
	if err != nil {
		return err
	}
	owner, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil // the migration failed for the same reason
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	for range dropTries {
		var left bool
		if err = owner.QueryRow(ctx, constraintIsLeft).Scan(&left); err != nil || !left {
			return err
		}
		_, err = owner.Exec(ctx, "alter table account.audit_events drop constraint if exists audit_events_earlier")
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("the constraint audit_events_earlier of account.audit_events is left; run migrate again: %w", err)
}

// SchemaState returns how the schema differs from what this program needs.
func SchemaState(ctx context.Context, url credential.Secret) (migrate.State, error) {
	all, err := schema()
	if err != nil {
		return migrate.State{}, err
	}
	return all.Look(ctx, url.Reveal())
}

func schema() (migrate.Migrations, error) {
	files, err := fs.Sub(Migrations, "migrations")
	if err != nil {
		return migrate.Migrations{}, fmt.Errorf("read migrations: %w", err)
	}
	return migrate.Migrations{Files: files, Table: "goose_authserver"}, nil
}
