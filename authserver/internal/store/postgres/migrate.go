package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/almonerhq/almoner/shared/credential"
)

const versionTable = "goose_authserver"

// Migrate brings the schema up to date as the owner of the database, one process at a time, and returns how many
// migrations it applied.
func Migrate(ctx context.Context, url credential.Secret) (int, error) {
	provider, closeDB, err := newProvider(url)
	if err != nil {
		return 0, err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("migrate the account schema: %w", err), closeDB())
	}
	return len(results), closeDB()
}

// Pending says whether a migration is still to be applied.
func Pending(ctx context.Context, url credential.Secret) (bool, error) {
	provider, closeDB, err := newProvider(url)
	if err != nil {
		return false, err
	}
	pending, err := provider.HasPending(ctx)
	return pending, errors.Join(err, closeDB())
}

func newProvider(url credential.Secret) (*goose.Provider, func() error, error) {
	config, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		return nil, nil, errURL
	}
	files, err := fs.Sub(Migrations, "migrations")
	if err != nil {
		return nil, nil, fmt.Errorf("read migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, nil, fmt.Errorf("migration lock: %w", err)
	}
	db := stdlib.OpenDB(*config)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable), goose.WithSessionLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read migrations: %w", err), db.Close())
	}
	return provider, db.Close, nil
}
