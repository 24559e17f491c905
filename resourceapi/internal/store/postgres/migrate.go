package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/almonerhq/almoner/shared/migrate"
)

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
