package postgres

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/standing"
)

// Standing reads the standing of a credential. Its error is standing.ErrUnknown or wraps
// store.ErrUnavailable.
func (s *Store) Standing(ctx context.Context, q standing.Query) (standing.Standing, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	answer, err := standing.Read(ctx, s.pool, q)
	if err != nil && !errors.Is(err, standing.ErrUnknown) {
		return standing.Standing{}, unavailable("read standing", err)
	}
	return answer, err
}

// EndReplaced ends the tokens that a personal access token replaces. Its error wraps store.ErrUnavailable.
func (s *Store) EndReplaced(ctx context.Context, token uuid.UUID) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	return unavailable("end replaced tokens", standing.EndReplaced(ctx, s.pool, token))
}

// NewUsageRecorder starts a recorder of uses over this store's connections. Close it before the store.
func (s *Store) NewUsageRecorder(log *slog.Logger) *standing.UsageRecorder {
	return standing.NewUsageRecorder(s.pool, log)
}
