package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/spelling"
)

// lockPerson locks an address in its canonical spelling, unless it is empty, and then locks and returns its supporters.
// Earlier releases stored one supporter for each spelling. The index supporters_as_typed contains only these rows.
func (w *engageWriting) lockPerson(
	ctx context.Context, workspaceID uuid.UUID, email string,
) (person []uuid.UUID, err error) {
	if email == "" {
		return nil, nil
	}
	if err := lockAddress(ctx, w.tx, workspaceID, email); err != nil {
		return nil, err
	}
	person, err = w.otherSupporters(ctx, workspaceID, email)
	if err != nil {
		return nil, fmt.Errorf("find a supporter: %w", err)
	}
	var id uuid.UUID
	err = w.tx.QueryRow(ctx, "select id from resource.supporters where tenant_id = $1 and email = $2 for update",
		workspaceID, email).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return person, nil
	case err != nil:
		return nil, fmt.Errorf("find a supporter: %w", err)
	}
	return append(person, id), nil
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
