package postgres

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/database/migrate"
)

// accountFunctions are the functions of the authorization server's schema that this program calls.
var accountFunctions = []string{
	standing.Function,
	standing.ProfileFunction,
	"account.record_erasure(uuid, uuid, uuid, text, uuid, integer, text)",
	"account.events_after(uuid, bigint, text[], integer, integer, integer)",
	"account.record_webhook(uuid, uuid, uuid, text, uuid, jsonb, text)",
	"account.claim_webhooks(uuid[], interval, integer, integer)",
	// The last one of the migrations of webhooks.
	"account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid, boolean)",
	"account.make_months(text)",
	"account.note_networks(uuid[], uuid[], text[], uuid[], cidr[], integer)", // after the tables of usage
}

// Ready checks whether Postgres responds within a second and has every migration that this program knows, and the
// authorization server's migrations that it depends on. After a success the migrations are not checked again: they
// only go forward. Ready fails without a query while the Watch treats Postgres as silent, because every statement is
// refused then.
func (s *Store) Ready(ctx context.Context) error {
	if s.health.Silent() {
		return outcome(context.DeadlineExceeded)
	}
	if s.migrated.Load() {
		return s.Ping(ctx)
	}
	missing, err := schema.Missing(ctx, s.probe)
	if err != nil {
		return notReady(err)
	}
	var complete bool
	err = s.probe.QueryRow(ctx, `
		select bool_and(to_regprocedure(f) is not null)
		from unnest($1::text[]) f`, accountFunctions).Scan(&complete)
	if err != nil {
		return notReady(err)
	}
	if !complete {
		missing = append(missing, "authserver's")
	}
	if len(missing) > 0 {
		return notReady(fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", ")))
	}
	s.migrated.Store(true)
	return nil
}

// notReady turns any cause into a 503: a table of migrations that is missing or not readable is expected to appear
// once an operator migrates.
func notReady(cause error) error {
	if unavailable(cause) {
		return outcome(cause)
	}
	refusal := apierr.New(apierr.Unavailable, "This process is waiting for the database migration.")
	refusal.Cause = cause
	return refusal
}

//go:embed migrations/*.sql
var migrations embed.FS

var schema = migrate.Migrations{Files: migrations, Folder: "migrations", Table: "goose_resourceapi"}

// Migrate applies the missing migrations to the database of url, as its owner, and returns their names. The
// authorization server's migrations must have run before: they create the roles.
func Migrate(ctx context.Context, url string) ([]string, error) {
	applied, err := schema.Up(ctx, url)
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// Look returns how the schema differs from what this program needs.
func Look(ctx context.Context, url string) (migrate.State, error) { return schema.Look(ctx, url) }

// distributionJSON says which tables are distributed, and how, as a migrate.Distribution.
//
//go:embed distribution.json
var distributionJSON []byte

// Distribute distributes the records by workspace among the nodes of a Citus cluster and reports each step to out. It
// connects as the owner of the database. The tables of authserver must already be distributed. Imports stay on
// the first node.
func Distribute(ctx context.Context, url string, out io.Writer) error {
	return migrate.Distribute(ctx, url, distributionJSON, out)
}
