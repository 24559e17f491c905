package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// Networks lists the networks from which a credential of the workspace was used, the latest used first.
func (g *Grants) Networks(ctx context.Context, workspaceID, credential uuid.UUID) ([]usage.Network, error) {
	return list(ctx, g.db, "list networks", pgx.RowToStructByName[usage.Network], `
select network, first_used_at, last_used_at from account.credential_networks
  where tenant_id = $1 and credential_id = $2 order by last_used_at desc, first_used_at desc, network
  limit $3`, workspaceID, credential, standing.NetworksAtMost)
}
