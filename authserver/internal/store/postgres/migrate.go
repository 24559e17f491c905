package postgres

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/migrate"
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

// distributionJSON says which tables are distributed and copied, and which functions Citus must know, as a
// migrate.Distribution.
//
//go:embed distribution.json
var distributionJSON []byte

// Distribute distributes the tables of workspaces among the nodes of a Citus cluster and reports each step to out. It
// connects as the owner of the database. Other tables are copied to each node or, like sign-ins and jobs, stay on the
// first node. It finishes the upgrade first, because the previous release does not work with a distributed database.
func Distribute(ctx context.Context, url credential.Secret, out io.Writer) error {
	found, err := migrate.HasCitus(ctx, url.Reveal())
	if err != nil {
		return err
	}
	if !found {
		return migrate.ErrNoCitus
	}
	if _, err := FinishUpgrade(ctx, url); err != nil {
		return err
	}
	var tables migrate.Distribution
	if err := json.Unmarshal(distributionJSON, &tables); err != nil {
		return fmt.Errorf("read distribution.json: %w", err)
	}
	return tables.Apply(ctx, url.Reveal(), out)
}
