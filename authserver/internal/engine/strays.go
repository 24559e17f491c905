package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/walk"
	"github.com/almonerhq/almoner/shared/identity"
)

// stray notes a refused request of a connector that presented no code or token of ours. What was noted a moment ago costs nothing;
// anything else costs one read, as the refusal itself did. Only what is to be written is remembered, or names that somebody makes up
// would use up what there is room for.
func (n *Noter) stray(ctx context.Context, request TokenRequest, refused *TokenError) error {
	caller, err := identity.OfClient(request.ClientID)
	stop := walk.Stop{ClientID: caller, Stray: true, Outcome: walk.Refused, Reason: refused.Description}
	if err != nil || n.strays.Noted(stop) {
		return nil
	}
	facts, err := n.Keeper.Facts(ctx, caller, uuid.Nil)
	if err != nil || facts.Client == nil || facts.Client.Kind != client.Connector || facts.Client.TenantID == uuid.Nil || !n.strays.IsNew(stop) {
		return err
	}
	stop.TenantID = facts.Client.TenantID
	return n.strays.Write(ctx, stop)
}
