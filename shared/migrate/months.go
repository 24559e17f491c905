package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
)

const (
	constraintIsLeft = `select exists (select from pg_constraint where conname = $2 and contype = 'c'
		and conrelid = to_regclass($1))`
	dropTries = 5
)

// DropLeftoverConstraints drops the constraints that a migration leaves if it fails while it partitions one of the
// tables by month, because another session uses the table. Such a constraint would refuse every row after the end of
// the next month. While another process migrates, it may be using the constraint, and none is dropped.
func DropLeftoverConstraints(ctx context.Context, url string, tables ...string) error {
	config, err := Config(url)
	if err != nil {
		return err
	}
	owner, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil // the migration failed for the same reason
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	var alone bool // until the connection is closed
	err = owner.QueryRow(ctx, "select pg_try_advisory_lock($1)", lock.DefaultLockID).Scan(&alone)
	switch {
	case err != nil:
		return fmt.Errorf("lock the migrations: %w", err)
	case !alone:
		return errors.New("another process is migrating; run migrate again when it has ended")
	}
	for _, table := range tables {
		if err := dropLeftoverConstraint(ctx, owner, table); err != nil {
			return err
		}
	}
	return nil
}

func dropLeftoverConstraint(ctx context.Context, owner *pgx.Conn, table string) (err error) {
	_, name, _ := strings.Cut(table, ".")
	name += "_earlier"
	for range dropTries {
		var left bool
		if err = owner.QueryRow(ctx, constraintIsLeft, table, name).Scan(&left); err != nil || !left {
			return err
		}
		_, err = owner.Exec(ctx, fmt.Sprintf("alter table %s drop constraint if exists %s", table, name))
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("the constraint %s of %s is left; run migrate again: %w", name, table, err)
}
