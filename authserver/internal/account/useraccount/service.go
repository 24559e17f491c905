package useraccount

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// Deletions deletes accounts. Its errors are membership.ErrLastHolder and audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type Deletions interface {
	DeletionSummary(ctx context.Context, user uuid.UUID) (Summary, error)
	// DeleteOwnUser deletes an account and records the event, if the event's authorization is still valid (P1, P2).
	DeleteOwnUser(ctx context.Context, user uuid.UUID, event audit.Event) (Ended, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	Store interface {
		Deletions
		EmailChanges
	}
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time)
	Random              io.Reader
}

// A Service changes accounts. It is safe for concurrent use.
type Service struct{ Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

// Summary returns what would end if the account was deleted.
func (s *Service) Summary(ctx context.Context, user uuid.UUID) (Summary, error) {
	return s.Store.DeletionSummary(ctx, user)
}

// Delete deletes the account of a user at the user's request. It returns membership.ErrLastHolder.
func (s *Service) Delete(ctx context.Context, user uuid.UUID, event audit.Event) error {
	ended, err := s.Store.DeleteOwnUser(ctx, user, event)
	if err != nil {
		return err
	}
	for _, g := range ended.Grants {
		s.PropagateRevocation(ctx, g.ID, g.Ends)
	}
	return nil
}
