package postgres

import (
	"context"
	"io"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/migrate"
)

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
	return migrate.Distribution{
		Reference: []string{
			"account.organisations",
			"account.tenants",
			"account.users",
			"account.tenant_modules",
			"account.tenant_features",
			"account.connector_policies",
			"account.memberships",
			"account.oauth_clients",
			"account.client_secrets",
			"account.personal_access_tokens",
			"account.signing_keys",
			"account.endings",
		},
		ByWorkspace: []string{
			"account.events",
			"account.event_sequences",
			"account.grants",
			"account.connection_stops",
			"account.token_uses",
		},
		Functions: []string{
			"account.is_coordinator()",
			"account.add_event(uuid, text, uuid, text[])",
		},
		AsCaller: []string{
			"account.note_membership()",
			"account.note_connection()",
			"account.add_event(uuid, text, uuid, text[])",
			"account.number_events(uuid)",
			"account.number_events(uuid, integer)",
			"account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer)",
			"account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid)",
		},
		Sequential: []string{"account.delete_clients(timestamptz, integer)"},
		Grants: []string{
			"grant select, insert, update on account.events, account.event_sequences " +
				"to almoner_authserver, almoner_resourceapi",
			"grant execute on function account.number_events(uuid), account.number_events(uuid, integer) " +
				"to almoner_authserver, almoner_resourceapi",
		},
	}.Apply(ctx, url.Reveal(), out)
}
