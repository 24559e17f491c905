package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
)

// Plant puts the demo into a database that Claim has accepted and the services have migrated, as its owner, and
// completes d with what is good now. A second time it changes nothing but this: a demo token that expired or was
// revoked gets a successor, and the connectors follow the installation to another port.
func Plant(ctx context.Context, db *pgx.Conn, s seed.Seed, d *Demo, now time.Time) error {
	if err := once(ctx, db, "account", func(tx pgx.Tx) error { return plantAccount(ctx, tx, s, *d) }); err != nil {
		return err
	}
	if err := once(ctx, db, "programmes", func(tx pgx.Tx) error { return plantProgrammes(ctx, tx, s, *d, now) }); err != nil {
		return err
	}
	if err := once(ctx, db, "engage", func(tx pgx.Tx) error { return plantEngage(ctx, tx, s, *d) }); err != nil {
		return err
	}
	if err := followAddress(ctx, db, *d); err != nil {
		return err
	}
	return plantTokens(ctx, db, s, d, now)
}
