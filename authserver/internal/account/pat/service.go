package pat

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A MemberToken is an active token with its user.
type MemberToken struct {
	Token
	Person string // name of the user
	Email  string // of the user
}

// A Filter selects active tokens of a workspace, the latest first.
type Filter struct {
	ID     *uuid.UUID   // the token with this id, or nil for all
	UserID *uuid.UUID   // those of one user, or nil for all
	Before audit.Cursor // those after this place in the list; the zero Cursor is the beginning
	Limit  int
}

// ErrNoToken reports that there is no such active token, or none that the caller may see.
var ErrNoToken = errors.New("no such token")

// ByAdmin is the reason of a token that another member of the workspace revoked.
const ByAdmin = "revoked_by_administrator"

// A Store stores tokens. Its errors wrap store.ErrUnavailable, or audit.ErrNotAuthorized if the event's authorization
// has ended.
type Store interface {
	WorkspaceTokens(ctx context.Context, workspaceID uuid.UUID, filter Filter) ([]MemberToken, error)
	// RevokeToken revokes a token that is not revoked yet. It returns false if there is no such token.
	RevokeToken(ctx context.Context, t Token, reason string, event audit.Event) (bool, error)
}

// Tokens reads and revokes the tokens of workspaces, for pages and callers of the API. Members see and revoke their
// own; those of others need account:read:members and account:write:members (contract, section 5b). It is safe for
// concurrent use.
type Tokens struct{ Store Store }

// List lists the tokens that the filter selects among those that the actor may see (audit.Actor.Sees).
func (s Tokens) List(ctx context.Context, by audit.Actor, filter Filter) (found []MemberToken, err error) {
	if filter.UserID, err = by.Sees(filter.UserID); err != nil {
		return nil, err
	}
	return s.Store.WorkspaceTokens(ctx, by.WorkspaceID, filter)
}

// Find returns the token with this id if the actor may see it, or ErrNoToken.
func (s Tokens) Find(ctx context.Context, by audit.Actor, id uuid.UUID) (MemberToken, error) {
	found, err := s.List(ctx, by, Filter{ID: &id, Limit: 1})
	if err != nil || len(found) == 0 {
		return MemberToken{}, cmp.Or(err, ErrNoToken)
	}
	return found[0], nil
}

// Revoke revokes a token at once. It returns ErrNoToken or audit.ErrOthers.
func (s Tokens) Revoke(ctx context.Context, by audit.Actor, id uuid.UUID) error {
	found, err := s.Find(ctx, by, id)
	if err != nil {
		return err
	}
	reason, needs := ByUser, perm.Set(nil)
	if found.UserID != by.UserID {
		reason, needs = ByAdmin, perm.NewSet(perm.AccountWriteMembers)
		if !by.Permissions.HasAll(needs) {
			return audit.ErrOthers
		}
	}
	return s.End(ctx, found.Token, reason, by.Event(audit.TokenRevoked, "token:"+id.String(), nil, needs))
}

// End revokes a token for a reason, with the event of who does so. It returns ErrNoToken if it is not active.
func (s Tokens) End(ctx context.Context, t Token, reason string, event audit.Event) error {
	event.UserID, event.WorkspaceID = &t.UserID, &t.WorkspaceID
	event.Detail = map[string]any{"name": t.Name, "reason": reason}
	revoked, err := s.Store.RevokeToken(ctx, t, reason, event)
	if err == nil && !revoked {
		err = ErrNoToken
	}
	return err
}
