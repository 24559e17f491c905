package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/migrate"
)

// Migrate applies the missing migrations as the owner of the database and returns their names.
func Migrate(ctx context.Context, url credential.Secret) ([]string, error) {
	return migrateFor(ctx, url, 0)
}

// migrateFor is Migrate with tryFor as migrate.Migrations.TryFor; 0 means its default.
func migrateFor(ctx context.Context, url credential.Secret, tryFor time.Duration) ([]string, error) {
	all, err := schema()
	if err != nil {
		return nil, err
	}
	all.TryFor = tryFor
	applied, err := all.Up(ctx, url.Reveal())
	if err != nil {
		return applied, errors.Join(fmt.Errorf("migrate the account schema: %w", err),
			migrate.DropLeftoverConstraints(ctx, url.Reveal(), partitionedTables()...))
	}
	return applied, nil
}

// partitionedTables are the tables that a migration partitions by month.
func partitionedTables() []string { return []string{"account.audit_events", "account.events"} }

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
