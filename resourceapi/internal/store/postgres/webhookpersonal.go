package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/event"
)

// PersonalData implements delivery.Store.
func (h *Webhooks) PersonalData(
	ctx context.Context, workspaceID uuid.UUID, e event.Event,
) (p delivery.PersonalData, err error) {
	kind, _, _ := strings.Cut(e.Type, ".")
	if kind != "submission" && kind != "member" {
		return p, nil
	}
	var subject struct{ ID uuid.UUID }
	if err := json.Unmarshal(e.Data, &subject); err != nil {
		return p, fmt.Errorf("read the subject of an event: %w", err)
	}
	if kind == "member" {
		p.Member, err = h.member(ctx, workspaceID, subject.ID)
		return p, err
	}
	p.Submission, p.Supporter, err = h.submission(ctx, workspaceID, subject.ID)
	return p, err
}

// submission reads a submission and its supporter, each nil if it is not stored. Both are nil while no member may read
// them, because the module is off (contract, section 6).
func (h *Webhooks) submission(
	ctx context.Context, workspaceID, id uuid.UUID,
) (*engage.SubmissionRecord, *engage.SupporterRecord, error) {
	open, err := h.engageOpen(ctx, workspaceID)
	if err != nil || !open {
		return nil, nil, err
	}
	stored := &Engage{pool: h.pool, turns: h.turns}
	s, err := stored.Submission(ctx, workspaceID, id)
	if errors.Is(err, engage.ErrNoSubmission) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if s.Supporter == nil {
		return new(s.Record()), nil, nil
	}
	p, err := stored.Supporter(ctx, workspaceID, *s.Supporter)
	if errors.Is(err, engage.ErrNoSupporter) {
		return nil, nil, nil // erased meanwhile, with the submission
	}
	if err != nil {
		return nil, nil, err
	}
	return new(s.Record()), new(p.Record()), nil
}

// engageOpen reports whether Engage is enabled and provisioned in the workspace.
func (h *Webhooks) engageOpen(ctx context.Context, workspaceID uuid.UUID) (open bool, err error) {
	ctx, cancel := h.pool.bounded(ctx)
	defer cancel()
	err = h.pool.QueryRow(ctx, `select exists (
		select from account.module_state($1, 'engage') m where m.enabled and m.provisioned)`, workspaceID).Scan(&open)
	return open, outcome(err)
}

// member reads a member of the workspace, or returns nil.
func (h *Webhooks) member(ctx context.Context, workspaceID, user uuid.UUID) (*delivery.Member, error) {
	ctx, cancel := h.pool.bounded(ctx)
	defer cancel()
	m := delivery.Member{UserID: user}
	err := h.pool.QueryRow(ctx, "select name, email from account.webhook_member($1, $2)", workspaceID, user).
		Scan(&m.Name, &m.Email)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, outcome(err)
	}
	return &m, nil
}
