package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable remembers what was applied. Each service has its own, as they share a database.
const versionTable = "goose_resourceapi"

// Migrate brings the database of url, which belongs to the user of url, to the newest schema. authserver's migrations
// come first: they make the roles. Several processes may call it at once; one does the work.
func Migrate(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errURL
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	return migrate(ctx, db)
}

func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	one, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("prepare to migrate: %w", err)
	}
	provider, err := goose.NewProvider(database.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(one))
	if err != nil {
		return fmt.Errorf("prepare to migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
