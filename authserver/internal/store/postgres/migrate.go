package postgres

import (
	"context"
	"fmt"
	"io/fs"

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
		return applied, fmt.Errorf("migrate the account schema: %w", err)
	}
	return applied, nil
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
