package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

// recordOrphan records a refused request of a connector that presented no genuine code or token. A recently recorded
// request costs nothing. Only what is written is remembered, so invented client ids cannot fill the cache.
func (r *RefusalRecorder) recordOrphan(ctx context.Context, x *exchange, refused *TokenError) error {
	caller, err := identity.OfClient(x.request.ClientID)
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
	if c.Kind != client.Connector || c.WorkspaceID == uuid.Nil || !r.orphans.IsNew(stop) {
		return nil
	}
	stop.WorkspaceID = c.WorkspaceID
	return r.orphans.Write(ctx, stop)
}
