package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// recordErasure adds an event to the audit log of the workspace, without what was erased.
func recordErasure(
	ctx context.Context, tx pgx.Tx, workspaceID, by uuid.UUID, kind string, id uuid.UUID, submissions int,
	request string,
) error {
	_, err := tx.Exec(ctx, "select account.record_erasure($1, $2, $3, $4, $5, $6, $7)",
		identity.New(), workspaceID, by, kind, id, submissions, request)
	if err != nil {
		return fmt.Errorf("record an erasure: %w", err)
	}
	return nil
}

// RecordExport records in the audit log of the workspace that the user by exports the submissions of a form.
func (e *Engage) RecordExport(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error {
	_, err := e.pool.Exec(ctx, "select account.record_export($1, $2, $3, $4, $5, $6)",
		identity.New(), workspaceID, by, form, map[string]string{"format": format}, web.RequestID(ctx))
	if err != nil {
		return outcome(fmt.Errorf("record an export: %w", err))
	}
	return nil
}

// EraseSubmission implements engage.Writer. The job of a submission that waits then finds nothing to do.
func (w *writing) EraseSubmission(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	_, err := byID(id, engage.ErrNoSubmission, func(months string) (struct{}, error) {
		tag, err := w.tx.Exec(ctx, "delete from resource.submissions where tenant_id = $1 and id = $2"+months+
			notErased, workspaceID, id)
		if err == nil && tag.RowsAffected() == 0 {
			err = engage.ErrNoSubmission
		}
		return struct{}{}, err
	})
	if errors.Is(err, engage.ErrNoSubmission) {
		return err
	}
	if err != nil {
		return fmt.Errorf("erase a submission: %w", err)
	}
	return recordErasure(ctx, w.tx, workspaceID, by, "submission", id, 0, web.RequestID(ctx))
}

// EraseForm implements engage.Writer. The form is locked first, so that no submission arrives meanwhile.
func (w *writing) EraseForm(ctx context.Context, workspaceID, id, by uuid.UUID) (engage.Erasure, error) {
	if _, err := oneForm(ctx, w.tx, formSQL+" for update", workspaceID, id); err != nil {
		return engage.Erasure{}, err
	}
	e := erasureRow{workspaceID: workspaceID, kind: engage.ErasedForm, subjects: []uuid.UUID{id}, by: by,
		request: web.RequestID(ctx)}
	submissions, err := w.countUpTo(ctx, formSubmissions, e)
	if err != nil {
		return engage.Erasure{}, err
	}
	if submissions > engage.MaxErasedAtOnce {
		_, err := w.tx.Exec(ctx, `update resource.forms set erased_at = now(), version = version + 1,
			disabled_at = coalesce(disabled_at, now()) where tenant_id = $1 and id = $2`, workspaceID, id)
		if err != nil {
			return engage.Erasure{}, fmt.Errorf("close a form that is erased: %w", err)
		}
		return w.acceptErasure(ctx, e)
	}
	if e.deleted, err = e.deleteBatch(ctx, w.tx, formSubmissions, engage.MaxErasedAtOnce); err != nil {
		return engage.Erasure{}, err
	}
	return e.finish(ctx, w.tx)
}

// EraseSupporter implements engage.Writer. Earlier releases stored one supporter for each spelling of an address: all
// of them are erased.
func (w *writing) EraseSupporter(ctx context.Context, workspaceID, id, by uuid.UUID) (engage.Erasure, error) {
	var email string
	err := w.tx.QueryRow(ctx, `select coalesce(email, '') from resource.supporters
		where tenant_id = $1 and id = $2 and erased_at is null`, workspaceID, id).Scan(&email)
	if errors.Is(err, pgx.ErrNoRows) {
		return engage.Erasure{}, engage.ErrNoSupporter
	}
	if err != nil {
		return engage.Erasure{}, fmt.Errorf("find a supporter: %w", err)
	}
	if email != "" {
		email = spelling.Key(email)
	}
	person, err := w.lockPerson(ctx, workspaceID, email)
	if err != nil {
		return engage.Erasure{}, err
	}
	tag, err := w.tx.Exec(ctx, `select from resource.supporters
		where tenant_id = $1 and id = $2 and erased_at is null for update`, workspaceID, id)
	if err != nil {
		return engage.Erasure{}, fmt.Errorf("lock a supporter: %w", err)
	}
	if tag.RowsAffected() == 0 { // erased meanwhile
		return engage.Erasure{}, engage.ErrNoSupporter
	}
	others := slices.DeleteFunc(person, func(one uuid.UUID) bool { return one == id })
	return w.erasePerson(ctx, workspaceID, append([]uuid.UUID{id}, others...), email, by)
}

// EraseAddress implements engage.Writer.
func (w *writing) EraseAddress(
	ctx context.Context, workspaceID uuid.UUID, email string, by uuid.UUID,
) (engage.Erasure, error) {
	person, err := w.lockPerson(ctx, workspaceID, email)
	if err != nil {
		return engage.Erasure{}, err
	}
	return w.erasePerson(ctx, workspaceID, person, email, by)
}

// lockAddress makes the transaction the only one of the workspace that adds or erases the supporter with the address.
// Without it, an erasure would not find a supporter whom a worker has added and not committed yet. It comes before the
// locks of submissions.
func lockAddress(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, email string) error {
	if email == "" {
		return nil
	}
	_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('address ' || $1::text || ' ' || $2, 0))",
		workspaceID.String(), email)
	if err != nil {
		return fmt.Errorf("lock an address: %w", err)
	}
	return nil
}

// erasePerson erases supporters, who are locked, and the submissions without a supporter that have the address.
func (w *writing) erasePerson(
	ctx context.Context, workspaceID uuid.UUID, person []uuid.UUID, email string, by uuid.UUID,
) (engage.Erasure, error) {
	e := erasureRow{workspaceID: workspaceID, kind: engage.ErasedSupporter, subjects: person, by: by,
		request: web.RequestID(ctx)}
	if email != "" {
		e.addresses = spelling.Spellings(email)
	}
	linked, err := w.countUpTo(ctx, supporterSubmissions, e)
	if err != nil {
		return engage.Erasure{}, err
	}
	unlinked, few, err := w.unlinked(ctx, workspaceID, e.addresses)
	if err != nil {
		return engage.Erasure{}, err
	}
	if !few || linked+len(unlinked) > engage.MaxErasedAtOnce {
		_, err := w.tx.Exec(ctx, `update resource.supporters set erased_at = now(), email = null, phone = null,
			name = null where tenant_id = $1 and id = any($2)`, workspaceID, person)
		if err != nil {
			return engage.Erasure{}, fmt.Errorf("hide a supporter who is erased: %w", err)
		}
		return w.acceptErasure(ctx, e)
	}
	tag, err := w.tx.Exec(ctx, `delete from resource.submissions
		where tenant_id = $1 and id = any($2) and supporter_id is null`, workspaceID, unlinked)
	if err != nil {
		return engage.Erasure{}, fmt.Errorf("erase what was sent with an address: %w", err)
	}
	if e.deleted, err = e.deleteBatch(ctx, w.tx, supporterSubmissions, engage.MaxErasedAtOnce); err != nil {
		return engage.Erasure{}, err
	}
	if e.deleted += int(tag.RowsAffected()); e.deleted == 0 && len(person) == 0 {
		return engage.Erasure{Kind: e.kind, Status: engage.Processed}, nil // nothing was erased
	}
	return e.finish(ctx, w.tx)
}

// maxCompared is the number of submissions without a supporter up to which a request compares them with an address.
const maxCompared = 10_000

// unlinked returns the submissions with one of the addresses that were rejected or not processed yet, at most one more
// than a request erases. few is false if the workspace has too many to compare.
func (w *writing) unlinked(
	ctx context.Context, workspaceID uuid.UUID, addresses []string,
) (ids []uuid.UUID, few bool, err error) {
	if len(addresses) == 0 {
		return nil, true, nil
	}
	err = w.tx.QueryRow(ctx, `
		with unlinked as materialized (
			select id, answers from resource.submissions
			where tenant_id = $1 and supporter_id is null`+notErased+` limit $3
		)
		select array(select u.id from unlinked u where `+hasAddress("u.answers", "$2")+` limit $4),
			(select count(*) from unlinked) < $3`,
		workspaceID, addresses, maxCompared+1, engage.MaxErasedAtOnce+1).Scan(&ids, &few)
	if err != nil {
		return nil, false, fmt.Errorf("find what was sent with an address: %w", err)
	}
	return ids, few, nil
}

// hasAddress returns the condition that one of the answers is one of the spellings of an address.
func hasAddress(answers, addresses string) string {
	return "exists (select from jsonb_each_text(" + answers + ") sent where lower(sent.value) = any(" + addresses + "))"
}
