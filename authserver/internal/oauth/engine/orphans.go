package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/shared/identity"
)

// recordOrphan notes a refused request of a connector that presented no code or token of ours. What was noted a moment
// ago costs nothing. Only what is to be written is remembered, or names that somebody makes up would use up what there
// is room for.
func (n *RefusalRecorder) recordOrphan(ctx context.Context, x *exchange, refused *TokenError) error {
	caller, err := identity.OfClient(x.request.ClientID)
	stop := connectionlog.StoppedAttempt{
		ClientID: caller,
		Orphan:   true,
		Outcome:  connectionlog.Refused,
		Reason:   refused.Description,
	}
	if err != nil || n.orphans.Recorded(stop) {
		return nil
	}
	c := x.facts.Client
	if c == nil {
		known, err := n.Clients.RecentClient(ctx, caller)
		if errors.Is(err, n.Unknown) {
			return nil
		}
		if err != nil {
			return err
		}
		c = &known
	}
	if c.Kind != client.Connector || c.WorkspaceID == uuid.Nil || !n.orphans.IsNew(stop) {
		return nil
	}
	stop.WorkspaceID = c.WorkspaceID
	return n.orphans.Write(ctx, stop)
}
