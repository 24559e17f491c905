package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/rest"
)

// ensureSupporter returns the supporter of a submission. If the e-mail address is known, it returns the existing
// supporter unchanged: the sender has not proved to be that person (E6).
func (t *transaction) ensureSupporter(workspaceID uuid.UUID, s engage.Supporter) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	added := t.exec("add a supporter", `
		insert into resource.supporters (id, tenant_id, email, phone, name, canonical)
		values ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), true)
		on conflict (tenant_id, email) do nothing`,
		id, workspaceID, s.Email, s.Phone, s.Name)
	if added == 0 {
		t.row("find a supporter", "select id from resource.supporters where tenant_id = $1 and email = $2",
			workspaceID, s.Email).read(&id)
	}
	return id
}

const supporterSQL = `select p.id, nullif(p.email, '') as email, nullif(p.phone, '') as phone,
	nullif(p.name, '') as name, p.created_at
	from resource.supporters p where p.tenant_id = $1 and p.erased_at is null`

// Supporters passes one page of the workspace's supporters, newest first, to take until it returns false.
func (e *Engage) Supporters(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.StoredSupporter) bool,
) (rest.End, error) {
	scan := pgx.RowToStructByName[engage.StoredSupporter]
	return readRange(ctx, e.pool, supporterSQL, "p", arguments{workspaceID}, r, scan, take)
}

// Supporter reads a supporter. It returns engage.ErrNoSupporter, also for one of another workspace.
func (s *Store) Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error) {
	return oneRow(ctx, s.pool, engage.ErrNoSupporter, pgx.RowToStructByName[engage.StoredSupporter],
		supporterSQL+" and p.id = $2", workspaceID, id)
}

// Submission reads a submission. It returns engage.ErrNoSubmission, also for one of another workspace.
func (s *Store) Submission(ctx context.Context, workspaceID, id uuid.UUID) (found engage.Submission, err error) {
	text := "select " + submissionColumns + " from resource.submissions where tenant_id = $1 and id = $2" + notErased
	for _, months := range monthsOf(id) {
		found, err = oneRow(ctx, s.pool, engage.ErrNoSubmission, scanSubmission, text+months, workspaceID, id)
		if !errors.Is(err, engage.ErrNoSubmission) {
			break
		}
	}
	return found, err
}

// lockPerson locks an address in its canonical spelling, unless it is empty, and then locks and returns its supporters.
// Earlier releases stored one supporter for each spelling. The index supporters_as_typed contains only these rows.
func (t *transaction) lockPerson(workspaceID uuid.UUID, email string) (person []uuid.UUID) {
	if email == "" {
		return nil
	}
	t.lockAddress(workspaceID, email)
	person = t.otherSupporters(workspaceID, email)
	var id uuid.UUID
	if t.row("find a supporter", "select id from resource.supporters where tenant_id = $1 and email = $2 for update",
		workspaceID, email).find(&id) {
		person = append(person, id)
	}
	return person
}

// otherSupporters locks and returns the supporters whose address is stored in another spelling.
func (t *transaction) otherSupporters(workspaceID uuid.UUID, email string) (others []uuid.UUID) {
	for _, one := range rowsOf(t, "find a supporter", pgx.RowToStructByNameLax[engage.StoredSupporter], `
		select id, email from resource.supporters
		where tenant_id = $1 and email <> $2 and canonical is null
			and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
		order by created_at, id for update`, workspaceID, email) {
		if spelling.Key(*one.Email) == email {
			others = append(others, one.ID)
		}
	}
	return others
}
