package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
)

// Seed writes the demo data, as the owner, to a database that Claim has accepted and the services have migrated, and
// adds the current tokens to d. A second call only replaces demo tokens that expired or were revoked, and updates the
// connectors to the installation's port.
func Seed(ctx context.Context, db *pgx.Conn, s seed.Seed, d *Demo, now time.Time) error {
	if err := once(ctx, db, "account", func(tx pgx.Tx) error { return insertAccount(ctx, tx, s, *d) }); err != nil {
		return err
	}
	err := once(ctx, db, "programmes", func(tx pgx.Tx) error { return insertProgrammes(ctx, tx, s, *d, now) })
	if err != nil {
		return err
	}
	if err := once(ctx, db, "engage", func(tx pgx.Tx) error { return insertEngage(ctx, tx, s, *d) }); err != nil {
		return err
	}
	if err := followAddress(ctx, db, *d); err != nil {
		return err
	}
	return ensureTokens(ctx, db, s, d, now)
}
