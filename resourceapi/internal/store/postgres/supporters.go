package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// ensureSupporter returns the supporter of a submission. If the e-mail address is known, it returns the existing
// supporter unchanged: the sender has not proved to be that person (E6).
func ensureSupporter(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, s engage.Supporter) (uuid.UUID, error) {
	id := identity.New()
	tag, err := tx.Exec(ctx, `
		insert into resource.supporters (id, tenant_id, email, phone, name, canonical)
		values ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), true)
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

const supporterColumns = "p.id, nullif(p.email, ''), nullif(p.phone, ''), nullif(p.name, ''), p.created_at"

func scanSupporter(row pgx.CollectableRow) (s engage.StoredSupporter, err error) {
	return s, row.Scan(&s.ID, &s.Email, &s.Phone, &s.Name, &s.CreatedAt)
}

// Supporters passes one page of the workspace's supporters, newest first, to take until it returns false.
func (e *Engage) Supporters(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.StoredSupporter) bool,
) (rest.End, error) {
	text := "select " + supporterColumns + " from resource.supporters p where p.tenant_id = $1 and p.erased_at is null"
	return readRange(ctx, e.pool, text, "p", arguments{workspaceID}, r, scanSupporter, take)
}

// Supporter reads a supporter. It returns engage.ErrNoSupporter, also for one of another workspace.
func (s *Store) Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error) {
	text := "select " + supporterColumns + " from resource.supporters p where p.tenant_id = $1 and p.id = $2 " +
		"and p.erased_at is null"
	found, err := oneRow(ctx, s.pool, engage.ErrNoSupporter, scanSupporter, text, workspaceID, id)
	return found, outcome(err)
}

// Submission reads a submission. It returns engage.ErrNoSubmission, also for one of another workspace.
func (s *Store) Submission(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error) {
	text := "select " + submissionColumns + " from resource.submissions where tenant_id = $1 and id = $2" + notErased
	found, err := byID(id, engage.ErrNoSubmission, func(months string) (engage.Submission, error) {
		return oneRow(ctx, s.pool, engage.ErrNoSubmission, scanSubmission, text+months, workspaceID, id)
	})
	return found, outcome(err)
}

// lockPerson locks an address in its canonical spelling, unless it is empty, and then locks and returns its supporters.
// Earlier releases stored one supporter for each spelling. The index supporters_as_typed contains only these rows.
func (w *writing) lockPerson(ctx context.Context, workspaceID uuid.UUID, email string) (person []uuid.UUID, err error) {
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
func (w *writing) otherSupporters(
	ctx context.Context, workspaceID uuid.UUID, email string,
) (others []uuid.UUID, err error) {
	rows, _ := w.tx.Query(ctx, `select id, email from resource.supporters
		where tenant_id = $1 and email <> $2 and canonical is null
			and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
		order by created_at, id for update`, workspaceID, email) // the rows have the error
	var id uuid.UUID
	var typed string
	_, err = pgx.ForEachRow(rows, []any{&id, &typed}, func() error {
		if spelling.Key(typed) == email {
			others = append(others, id)
		}
		return nil
	})
	return others, err
}
