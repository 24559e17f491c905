package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// recordErasure adds an event to the audit log of the workspace, without what was erased.
func recordErasure(
	ctx context.Context, tx pgx.Tx, workspaceID, by uuid.UUID, kind string, id uuid.UUID, submissions int,
) error {
	_, err := tx.Exec(ctx, "select account.record_erasure($1, $2, $3, $4, $5, $6, $7)",
		identity.New(), workspaceID, by, kind, id, submissions, web.RequestID(ctx))
	if err != nil {
		return fmt.Errorf("record an erasure: %w", err)
	}
	return nil
}

// RecordExport records in the audit log of the workspace that the user by exports the submissions of a form.
func (s *Engage) RecordExport(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, "select account.record_export($1, $2, $3, $4, $5, $6)",
		identity.New(), workspaceID, by, form, map[string]string{"format": format}, web.RequestID(ctx))
	if err != nil {
		return outcome(fmt.Errorf("record an export: %w", err))
	}
	return nil
}

// DeleteDraft implements programme.Writer.
func (w *writing) DeleteDraft(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	p, err := oneProgramme(ctx, w.tx, programmeSQL+" for update", workspaceID, id)
	if err != nil {
		return err
	}
	if p.Status != programme.Draft {
		return programme.ErrNoDraft
	}
	if _, err := w.tx.Exec(ctx, "delete from resource.programmes where tenant_id = $1 and id = $2",
		workspaceID, id); err != nil {
		return fmt.Errorf("delete a programme: %w", err)
	}
	return recordErasure(ctx, w.tx, workspaceID, by, "programme", id, 0)
}

// EraseSubmission implements engage.Writer. The job of a submission that waits then finds nothing to do.
func (w *engageWriting) EraseSubmission(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	_, err := byID(id, engage.ErrNoSubmission, func(months string) (struct{}, error) {
		tag, err := w.tx.Exec(ctx, "delete from resource.submissions where tenant_id = $1 and id = $2"+months,
			workspaceID, id)
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
	return recordErasure(ctx, w.tx, workspaceID, by, "submission", id, 0)
}

// EraseForm implements engage.Writer. The form is locked first, so that no submission arrives meanwhile.
func (w *engageWriting) EraseForm(ctx context.Context, workspaceID, id, by uuid.UUID) (submissions int, err error) {
	if _, err = oneForm(ctx, w.tx, "select "+formColumns+
		" from resource.forms f where f.tenant_id = $1 and f.id = $2 for update", workspaceID, id); err != nil {
		return 0, err
	}
	tag, err := w.tx.Exec(ctx, "delete from resource.submissions where tenant_id = $1 and form_id = $2",
		workspaceID, id)
	if err == nil {
		_, err = w.tx.Exec(ctx, "delete from resource.forms where tenant_id = $1 and id = $2", workspaceID, id)
	}
	if err != nil {
		return 0, fmt.Errorf("erase a form: %w", err)
	}
	submissions = int(tag.RowsAffected())
	return submissions, recordErasure(ctx, w.tx, workspaceID, by, "form", id, submissions)
}

// EraseSupporter implements engage.Writer.
func (w *engageWriting) EraseSupporter(
	ctx context.Context, workspaceID, id, by uuid.UUID,
) (submissions int, err error) {
	var email string
	err = w.tx.QueryRow(ctx, `
		select coalesce(email, '') from resource.supporters where tenant_id = $1 and id = $2 for update`,
		workspaceID, id).Scan(&email)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, engage.ErrNoSupporter
	}
	if err != nil {
		return 0, fmt.Errorf("find a supporter: %w", err)
	}
	if email != "" {
		email = spelling.Key(email)
		gathered, err := w.gather(ctx, workspaceID, email)
		if err != nil {
			return 0, err
		}
		if gathered != uuid.Nil {
			id = gathered
		}
	}
	if submissions, err = w.eraseUnlinked(ctx, workspaceID, email); err != nil {
		return 0, err
	}
	tag, err := w.tx.Exec(ctx, "delete from resource.submissions where tenant_id = $1 and supporter_id = $2",
		workspaceID, id)
	if err == nil {
		_, err = w.tx.Exec(ctx, "delete from resource.supporters where tenant_id = $1 and id = $2", workspaceID, id)
	}
	if err != nil {
		return 0, fmt.Errorf("erase a supporter: %w", err)
	}
	submissions += int(tag.RowsAffected())
	return submissions, recordErasure(ctx, w.tx, workspaceID, by, "supporter", id, submissions)
}

// EraseAddress implements engage.Writer.
func (w *engageWriting) EraseAddress(
	ctx context.Context, workspaceID uuid.UUID, email string, by uuid.UUID,
) (submissions int, err error) {
	id, err := w.gather(ctx, workspaceID, email)
	if err != nil {
		return 0, err
	}
	if id != uuid.Nil {
		submissions, err = w.EraseSupporter(ctx, workspaceID, id, by)
		if !errors.Is(err, engage.ErrNoSupporter) { // unless it was erased meanwhile
			return submissions, err
		}
	}
	if submissions, err = w.eraseUnlinked(ctx, workspaceID, email); err != nil || submissions == 0 {
		return 0, err
	}
	return submissions, recordErasure(ctx, w.tx, workspaceID, by, "supporter", uuid.Nil, submissions)
}

// eraseUnlinked deletes the submissions with the e-mail address that were rejected or not processed yet.
func (w *engageWriting) eraseUnlinked(ctx context.Context, workspaceID uuid.UUID, email string) (int, error) {
	if email == "" {
		return 0, nil
	}
	rows, err := w.tx.Query(ctx, `
		select f.id, field->>'name' from resource.forms f, jsonb_array_elements(f.fields) field
		where f.tenant_id = $1 and field->>'type' = 'email'`, workspaceID)
	if err != nil {
		return 0, fmt.Errorf("read the e-mail fields of forms: %w", err)
	}
	var (
		form  uuid.UUID
		name  string
		forms []uuid.UUID
		names []string
	)
	if _, err = pgx.ForEachRow(rows, []any{&form, &name}, func() error {
		forms, names = append(forms, form), append(names, name)
		return nil
	}); err != nil {
		return 0, fmt.Errorf("read the e-mail fields of forms: %w", err)
	}
	tag, err := w.tx.Exec(ctx, `
		delete from resource.submissions s using unnest($2::uuid[], $3::text[]) as field (form_id, name)
		where s.tenant_id = $1 and s.supporter_id is null and s.form_id = field.form_id
			and lower(s.answers->>field.name) = any($4)`, workspaceID, forms, names, spelling.Spellings(email))
	if err != nil {
		return 0, fmt.Errorf("erase what was sent with an address: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
