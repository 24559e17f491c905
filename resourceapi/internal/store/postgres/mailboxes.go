package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/spelling"
)

// gather returns the supporter with an address in its canonical spelling, for an erasure, or uuid.Nil. Earlier releases
// stored one supporter for each spelling; gather makes them one first, so that the erasure finds all they sent. The
// index supporters_as_typed contains only these rows.
func (w *engageWriting) gather(ctx context.Context, workspaceID uuid.UUID, email string) (id uuid.UUID, err error) {
	others, err := w.otherSupporters(ctx, workspaceID, email)
	if err != nil {
		return uuid.Nil, fmt.Errorf("find a supporter: %w", err)
	}
	err = w.tx.QueryRow(ctx, "select id from resource.supporters where tenant_id = $1 and email = $2",
		workspaceID, email).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, fmt.Errorf("find a supporter: %w", err)
	}
	if len(others) == 0 {
		return id, nil
	}
	if id == uuid.Nil {
		id, others = others[0], others[1:]
	}
	for _, statement := range []string{
		"update resource.submissions set supporter_id = $2 where tenant_id = $1 and supporter_id = any($3)",
		"delete from resource.supporters where tenant_id = $1 and id <> $2 and id = any($3)",
	} {
		if _, err := w.tx.Exec(ctx, statement, workspaceID, id, others); err != nil {
			return uuid.Nil, fmt.Errorf("gather the supporters of an address: %w", err)
		}
	}
	_, err = w.tx.Exec(ctx, "update resource.supporters set email = $3, canonical = true where tenant_id = $1 and id = $2",
		workspaceID, id, email)
	if err != nil {
		return uuid.Nil, fmt.Errorf("gather the supporters of an address: %w", err)
	}
	return id, nil
}

// otherSupporters locks and returns the supporters whose address is stored in another spelling.
func (w *engageWriting) otherSupporters(
	ctx context.Context, workspaceID uuid.UUID, email string,
) (others []uuid.UUID, err error) {
	rows, err := w.tx.Query(ctx, `select id, email from resource.supporters
		where tenant_id = $1 and email <> $2 and canonical is null
			and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
		order by created_at, id for update`, workspaceID, email)
	if err != nil {
		return nil, err
	}
	var (
		id    uuid.UUID
		typed string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &typed}, func() error {
		if spelling.Key(typed) == email {
			others = append(others, id)
		}
		return nil
	})
	return others, err
}
