package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/audit"
	"github.com/almonerhq/almoner/authserver/internal/grant"
	"github.com/almonerhq/almoner/authserver/internal/walk"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

// Refusals notes events of refusals, few of the same. Its errors wrap grant.ErrUnavailable.
type Refusals interface {
	NoteRefusal(ctx context.Context, e audit.Event) error
	walk.Stops
}

// A Noter answers token requests like its Engine, and notes why it refused one that concerns a grant: whoever asks later why an
// application stopped working finds the reason in the audit log. A request that succeeds costs nothing more, and nothing is
// kept of a code or token that is forged but that its client was refused (strays.go); a note that fails changes no answer.
type Noter struct {
	*Engine
	refusals Refusals
	strays   *walk.Noter
	log      *slog.Logger
}

// NewNoter makes a Noter.
func NewNoter(e *Engine, refusals Refusals, log *slog.Logger) *Noter {
	return &Noter{Engine: e, refusals: refusals, strays: walk.NewNoter(refusals, time.Now, log), log: log}
}

// Token is Engine.Token.
func (n *Noter) Token(ctx context.Context, request TokenRequest) (Tokens, error) {
	tokens, err := n.Engine.Token(ctx, request)
	var refused *TokenError
	if errors.As(err, &refused) {
		if noteErr := n.note(context.WithoutCancel(ctx), request, refused); noteErr != nil {
			n.log.Warn("a refusal was not noted", "request_id", web.RequestID(ctx), "error", noteErr)
		}
	}
	return tokens, err
}

func (n *Noter) note(ctx context.Context, request TokenRequest, refused *TokenError) error {
	presented, authentic := n.presented(request)
	if !authentic {
		return n.stray(ctx, request, refused)
	}
	caller, err := identity.OfClient(request.ClientID)
	if err != nil {
		return nil
	}
	facts, err := n.Keeper.Facts(ctx, caller, presented.GrantID)
	if err != nil || facts.Grant == nil {
		return err
	}
	g := facts.Grant
	return n.refusals.NoteRefusal(ctx, audit.Event{
		TenantID: &g.TenantID, UserID: &g.UserID, Actor: "client:" + caller.String(), Action: "grant.refused",
		Subject: "grant:" + g.ID.String(), RequestID: web.RequestID(ctx), Detail: map[string]any{
			"reason": why(facts, caller), "client_id": g.ClientID.String(), "error": refused.Code, "description": refused.Description,
		},
	})
}

// presented is the code or refresh token of the request, if we minted it.
func (n *Noter) presented(request TokenRequest) (grant.Token, bool) {
	if token, err := n.Keeper.ReadToken(grant.Refresh, request.RefreshToken); err == nil {
		return token, true
	}
	token, err := n.Keeper.ReadToken(grant.Code, request.Code)
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
func why(f grant.Facts, caller uuid.UUID) string {
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
