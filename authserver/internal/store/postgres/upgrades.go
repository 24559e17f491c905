package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/migrate"
)

// tokensCarryWorkspace is the step after which codes and refresh tokens contain their workspace.
const tokensCarryWorkspace = "tokens_carry_workspace"

// finishSQL are the statements that must not run while a process of the previous release is running. Each can be
// repeated, and runs outside a transaction. The next release has them as migrations, because its upgrade begins after
// this upgrade is finished.
var finishSQL = []string{
	`create index concurrently if not exists grants_located on account.grants (id)`,
	`insert into account.finished_upgrades (name) values ('` + tokensCarryWorkspace + `') on conflict do nothing`,
	`drop index concurrently if exists account.grants_by_id`,
	`drop index concurrently if exists account.webhook_deliveries_by_id`,
}

// brokenSQL reports whether an interrupted call has left an invalid index.
const brokenSQL = `select exists (select from pg_index
	where indexrelid = to_regclass('account.grants_located') and not indisvalid)`

// FinishUpgrade completes the upgrade after the last process of the previous release has ended. It connects as the
// owner of the database, whose schema must be up to date. The previous release no longer works afterwards. It returns
// the number of users whose address has invisible characters or is another spelling of another user's address; it
// leaves these as they are.
func FinishUpgrade(ctx context.Context, url credential.Secret) (duplicates int, err error) {
	config, err := migrate.Config(url.Reveal())
	if err != nil {
		return 0, err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	statements, broken := finishSQL, false
	if err := connection.QueryRow(ctx, brokenSQL).Scan(&broken); err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", err)
	}
	if broken {
		statements = slices.Insert(slices.Clone(statements), 0, `drop index concurrently account.grants_located`)
	}
	for _, statement := range statements {
		if _, err := connection.Exec(ctx, statement); err != nil {
			return 0, fmt.Errorf("finish the upgrade: %w", migrate.Explain(err))
		}
	}
	if duplicates, err = respell(ctx, connection); err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", migrate.Explain(err))
	}
	return duplicates, nil
}
