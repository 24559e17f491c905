// Package usage lists what credentials did, by day and operation (contract, section 5b).
package usage

import (
	"context"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/usage"
)

// Kept is how long the rows are kept after their day.
const Kept = usage.KeptDays * 24 * time.Hour

// A Row is what one credential did by one operation on one day.
type Row = usage.Row

// A Filter selects rows of a workspace.
type Filter struct {
	CredentialID *uuid.UUID // of one credential, or nil for all
	UserID       *uuid.UUID // of one user, or nil for all
	From, To     time.Time  // the first and the last day
	After        *Row       // those after this row in the list, or nil for the beginning
	Limit        int        // 0 for all
}

// A Store stores the rows. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Usage lists the rows, the latest day first.
	Usage(ctx context.Context, workspaceID uuid.UUID, filter Filter) ([]Row, error)
}

// A Reader reads the rows of the workspaces. It is safe for concurrent use.
type Reader struct{ Store Store }

// List lists the rows that the filter selects among those that the actor may see (audit.Actor.Sees).
func (r Reader) List(ctx context.Context, by audit.Actor, filter Filter) (found []Row, err error) {
	if filter.UserID, err = by.Sees(filter.UserID); err != nil {
		return nil, err
	}
	return r.Store.Usage(ctx, by.WorkspaceID, filter)
}

// A Network is where a credential was used: an IPv4 /24 or an IPv6 /48.
type Network struct {
	Network     netip.Prefix
	FirstUsedAt time.Time
	LastUsedAt  time.Time // exact to the day
}
