package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A RefusalStore stores events of refusals, with few repetitions. Its errors wrap store.ErrUnavailable.
type RefusalStore interface {
	RecordRefusal(ctx context.Context, e audit.Event) error
	connectionlog.StoppedAttempts
}

// A RefusalRecorder processes token requests like its Engine, and records in the audit log why it refused a request
// that concerns a grant. A successful request costs nothing more, and a repeated refusal costs no more than the
// refusal. For a forged code or token it records only that its client was refused (orphans.go). A failed write does not
// change the response.
type RefusalRecorder struct {
	*Engine
	refusals RefusalStore
	recent   *lru.Cache[refusal, struct{}]
	now      func() time.Time
	orphans  *connectionlog.Recorder
	log      *slog.Logger
}

// A refusal identifies refused requests of a grant, by reason and clock hour. The audit log stores each refusal once.
// If there are more than maxRecent, or the process restarts, the recorder writes a refusal again, which
// has no effect.
type refusal struct {
	grant uuid.UUID
	why   string
	hour  time.Time
}

const maxRecent = 8192

func (r *RefusalRecorder) refusal(grant uuid.UUID, why string) refusal {
	return refusal{grant, why, r.now().UTC().Truncate(time.Hour)}
}

// NewRefusalRecorder returns a RefusalRecorder. now is the clock that determines the hour.
func NewRefusalRecorder(e *Engine, refusals RefusalStore, now func() time.Time, log *slog.Logger) *RefusalRecorder {
	recent, _ := lru.New[refusal, struct{}](maxRecent) // fails only if the size is not positive
	return &RefusalRecorder{
		Engine:   e,
		refusals: refusals,
		recent:   recent,
		now:      now,
		orphans:  connectionlog.NewRecorder(refusals, now, log),
		log:      log,
	}
}

// Token is like Engine.Token.
func (r *RefusalRecorder) Token(ctx context.Context, request TokenRequest) (Tokens, error) {
	x, err := r.try(ctx, request)
	var refused *TokenError
	if errors.As(err, &refused) {
		if recordErr := r.record(context.WithoutCancel(ctx), x, refused); recordErr != nil {
			r.log.WarnContext(ctx, "token refusal not recorded", "error", recordErr)
		}
	}
	return x.answer, err
}

func (r *RefusalRecorder) record(ctx context.Context, x *exchange, refused *TokenError) (err error) {
	presented, authentic := Presented(r.Grants, x.request)
	if !authentic {
		return r.recordOrphan(ctx, x, refused)
	}
	caller, err := identity.OfClient(x.request.ClientID)
	if err != nil {
		return nil
	}
	snapshot := x.snapshot
	if snapshot.Now.IsZero() || x.token.GrantID != presented.GrantID { // refused before anything was read
		key := r.refusal(presented.GrantID, caller.String()+refused.Description)
		if r.recent.Contains(key) {
			return nil
		}
		if snapshot, err = r.Grants.Snapshot(ctx, caller, presented.Key()); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				r.recent.Add(key, struct{}{})
			}
		}()
	}
	if snapshot.Grant == nil {
		return nil
	}
	return r.recordFor(ctx, snapshot, caller, x.ended, refused)
}

func (r *RefusalRecorder) recordFor(
	ctx context.Context,
	snapshot grant.Snapshot,
	caller uuid.UUID,
	ended grant.Reason,
	refused *TokenError,
) error {
	g := *snapshot.Grant
	if ended != "" {
		g.State, g.Reason = grant.Revoked, ended // the snapshot is older than that
	}
	snapshot.Grant = &g
	reason := why(snapshot, caller)
	key := r.refusal(g.ID, reason)
	if r.recent.Contains(key) {
		return nil
	}
	err := r.refusals.RecordRefusal(ctx, audit.Event{
		WorkspaceID: &g.WorkspaceID,
		UserID:      &g.UserID,
		Actor:       "client:" + caller.String(),
		Action:      audit.GrantRefused,
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
		r.recent.Add(key, struct{}{})
	}
	return err
}

// Reasons of refusals, besides those for which a grant ends (grant.Reason) and those that block its client
// (grant.Block).
const (
	anotherClient = "another_client"
	notMatching   = "request_does_not_match" // secret, redirect URI, verifier, resource, or a parameter
)

// why returns the reason of a refusal.
func why(s grant.Snapshot, caller uuid.UUID) string {
	g := s.Grant
	switch {
	case g.ClientID != caller:
		return anotherClient
	case g.State == grant.Revoked:
		return string(g.Reason)
	case s.Client == nil:
		return string(grant.ClientDeleted)
	}
	if block := s.Blocked(); block != grant.NotBlocked {
		return string(block)
	}
	return notMatching
}
