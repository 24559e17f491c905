package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// ensureSupporter returns the supporter of a submission. If the e-mail address is known, it returns the existing
// supporter unchanged: the sender has not proved to be that person (E6).
func ensureSupporter(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, s engage.Supporter) (uuid.UUID, error) {
	id := identity.New()
	tag, err := tx.Exec(ctx, `
		insert into resource.supporters (id, tenant_id, email, phone, name)
		values ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''))
		on conflict (tenant_id, email) do nothing`,
		id, workspaceID, s.Email, s.Phone, s.Name)
	if err != nil {
		return uuid.Nil, fmt.Errorf("add a supporter: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return id, nil
	}
	err = tx.QueryRow(ctx, `
		select id from resource.supporters where tenant_id = $1 and email = $2`, workspaceID, s.Email).Scan(&id)
	if err != nil {
		return uuid.Nil, fmt.Errorf("find a supporter: %w", err)
	}
	return id, nil
}
