package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

// RefusalStore notes events of refusals, few of the same. Its errors wrap store.ErrUnavailable.
type RefusalStore interface {
	RecordRefusal(ctx context.Context, e audit.Event) error
	connectionlog.StoppedAttempts
}

// A RefusalRecorder answers token requests like its Engine, and notes why it refused one that concerns a grant: whoever
// asks later why an application stopped working finds the reason in the audit log. A request that succeeds costs
// nothing more, one that is refused again and again costs no more than its refusal, and nothing is kept of a code or
// token that is forged but that its client was refused (orphans.go); a note that fails changes no answer.
type RefusalRecorder struct {
	*Engine
	refusals RefusalStore
	recent   *recentCache
	orphans  *connectionlog.Recorder
	log      *slog.Logger
}

// NewRefusalRecorder makes a Noter. now is the clock by which an hour is over.
func NewRefusalRecorder(e *Engine, refusals RefusalStore, now func() time.Time, log *slog.Logger) *RefusalRecorder {
	return &RefusalRecorder{
		Engine:   e,
		refusals: refusals,
		recent:   &recentCache{now: now},
		orphans:  connectionlog.NewRecorder(refusals, now, log),
		log:      log,
	}
}

// Token is Engine.Token.
func (n *RefusalRecorder) Token(ctx context.Context, request TokenRequest) (Tokens, error) {
	x, err := n.try(ctx, request)
	var refused *TokenError
	if errors.As(err, &refused) {
		if noteErr := n.record(context.WithoutCancel(ctx), x, refused); noteErr != nil {
			n.log.WarnContext(ctx, "a refusal was not noted", "error", noteErr)
		}
	}
	return x.answer, err
}

func (n *RefusalRecorder) record(ctx context.Context, x *exchange, refused *TokenError) error {
	presented, authentic := n.presented(x.request)
	if !authentic {
		return n.recordOrphan(ctx, x, refused)
	}
	caller, err := identity.OfClient(x.request.ClientID)
	if err != nil {
		return nil
	}
	facts := x.facts
	if facts.Now.IsZero() || x.token.GrantID != presented.GrantID { // refused before anything was read
		key := refusal{presented.GrantID, caller.String() + refused.Description}
		if n.recent.has(key) {
			return nil
		}
		if facts, err = n.Grants.Snapshot(ctx, caller, presented.GrantID); err != nil {
			return err
		}
		defer n.recent.add(key)
	}
	if facts.Grant == nil {
		return nil
	}
	return n.recordFor(ctx, facts, caller, x.ended, refused)
}

func (n *RefusalRecorder) recordFor(
	ctx context.Context,
	facts grant.Snapshot,
	caller uuid.UUID,
	ended grant.Reason,
	refused *TokenError,
) error {
	g := *facts.Grant
	if ended != "" {
		g.State, g.Reason = grant.Revoked, ended // which the facts are too old to know
	}
	facts.Grant = &g
	reason := why(facts, caller)
	key := refusal{g.ID, reason}
	if n.recent.has(key) {
		return nil
	}
	err := n.refusals.RecordRefusal(ctx, audit.Event{
		WorkspaceID: &g.WorkspaceID,
		UserID:      &g.UserID,
		Actor:       "client:" + caller.String(),
		Action:      "grant.refused",
		Subject:     "grant:" + g.ID.String(),
		RequestID:   web.RequestID(ctx),
		Detail: map[string]any{
			"reason":      reason,
			"client_id":   g.ClientID.String(),
			"error":       refused.Code,
			"description": refused.Description,
		},
	})
	if err == nil {
		n.recent.add(key)
	}
	return err
}

// presented is the code or refresh token of the request, if we minted it.
func (n *RefusalRecorder) presented(request TokenRequest) (grant.Token, bool) {
	if token, err := n.Grants.ReadToken(grant.Refresh, request.RefreshToken); err == nil {
		return token, true
	}
	token, err := n.Grants.ReadToken(grant.Code, request.Code)
	return token, err == nil
}

// Reasons of refusals that do not end a grant; the others are those by which it ended (grant.Reason).
const (
	anotherClient   = "another_client"
	timeOver        = "time_over"
	userDisabled    = "user_disabled"
	llmOff          = "llm_integration_off"
	permissionsLost = "permissions_lost"
	notMatching     = "request_does_not_match" // secret, redirect URI, verifier, resource, or a parameter
)

// why names the reason in the order in which Keeper asks.
func why(f grant.Snapshot, caller uuid.UUID) string {
	g := f.Grant
	switch {
	case g.ClientID != caller:
		return anotherClient
	case g.State == grant.Revoked:
		return string(g.Reason)
	case f.Client == nil:
		return string(grant.ClientDeleted)
	case !f.Now.Before(g.Ends):
		return timeOver
	case f.UserDisabled:
		return userDisabled
	case !f.Member:
		return string(grant.MembershipOver)
	case g.Kind.Traits().NeedsLLM && !f.LLM:
		return llmOff
	case len(g.Permissions.Intersect(f.Held)) == 0:
		return permissionsLost
	}
	return notMatching
}
