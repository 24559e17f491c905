package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A RefusalStore stores events of refusals, with few repetitions. Its errors wrap store.ErrUnavailable.
type RefusalStore interface {
	RecordRefusal(ctx context.Context, e audit.Event) error
	connectionlog.StoppedAttempts
}

// A refusalRecorder observes the token requests of its Engine, and records in the audit log why one that concerns a
// grant was refused. A successful request costs nothing more, and a repeated refusal costs no more than the refusal.
// For a forged code or token it records only that its client was refused. A failed write does not change the response.
type refusalRecorder struct {
	*Engine
	refusals RefusalStore
	recent   *lru.Cache[refusal, struct{}]
	now      func() time.Time
	orphans  *connectionlog.Recorder
}

// A refusal identifies refused requests of a grant, by reason and clock hour. The audit log stores each refusal once.
// If there are more than maxRecent, or the process restarts, the recorder writes a refusal again, which has no effect.
type refusal struct {
	grant uuid.UUID
	why   string
	hour  time.Time
}

const maxRecent = 8192

func (r *refusalRecorder) refusal(grant uuid.UUID, why string) refusal {
	return refusal{grant, why, r.now().UTC().Truncate(time.Hour)}
}

// RecordRefusals makes the engine record refusals. now is the clock that determines the hour.
func (e *Engine) RecordRefusals(refusals RefusalStore, now func() time.Time, log *slog.Logger) {
	recent, _ := lru.New[refusal, struct{}](maxRecent) // fails only if the size is not positive
	r := &refusalRecorder{
		Engine:   e,
		refusals: refusals,
		recent:   recent,
		now:      now,
		orphans:  connectionlog.NewRecorder(refusals, now, log),
	}
	e.Observe(func(ctx context.Context, one Outcome) {
		refused, ok := errors.AsType[*TokenError](one.Err)
		if !ok {
			return
		}
		if err := r.record(context.WithoutCancel(ctx), one.exchange, refused); err != nil {
			log.WarnContext(ctx, "token refusal not recorded", "error", err)
		}
	})
}

func (r *refusalRecorder) record(ctx context.Context, x *exchange, refused *TokenError) (err error) {
	presented, authentic := Presented(r.Grants.Tokens, x.request)
	if !authentic {
		return r.recordOrphan(ctx, x, refused)
	}
	caller, err := accesstoken.ClientID(x.request.ClientID)
	if err != nil {
		return nil
	}
	snapshot := x.snapshot
	if snapshot.Now.IsZero() || x.asked.Token.GrantID != presented.GrantID { // refused before anything was read
		key := r.refusal(presented.GrantID, caller.String()+refused.Description)
		if r.recent.Contains(key) {
			return nil
		}
		if snapshot, err = r.Grants.Snapshot(ctx, caller, presented.Key(), nil); err != nil {
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

func (r *refusalRecorder) recordFor(
	ctx context.Context, snapshot grant.Snapshot, caller uuid.UUID, ended grant.Reason, refused *TokenError,
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

// recordOrphan records a refused request of a connector that presented no genuine code or token. A recently recorded
// request costs nothing. Only what is written is remembered, so invented client ids cannot fill the cache.
func (r *refusalRecorder) recordOrphan(ctx context.Context, x *exchange, refused *TokenError) error {
	caller, err := accesstoken.ClientID(x.request.ClientID)
	stop := connectionlog.StoppedAttempt{
		ClientID: caller,
		Orphan:   true,
		Outcome:  connectionlog.Refused,
		Reason:   refused.Description,
	}
	if err != nil || r.orphans.Recorded(stop) {
		return nil
	}
	c := x.snapshot.Client
	if c == nil {
		known, err := r.Clients.RecentClient(ctx, caller)
		if errors.Is(err, client.ErrUnknown) {
			return nil
		}
		if err != nil {
			return err
		}
		c = &known
	}
	if c.Kind != client.Connector {
		return nil
	}
	stop.WorkspaceID = c.WorkspaceID
	return r.orphans.Write(ctx, stop)
}
