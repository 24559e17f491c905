package settings

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
)

// A TokenRevoker revokes personal access tokens.
type TokenRevoker interface {
	RevokeToken(ctx context.Context, user, workspaceID, id uuid.UUID, reason string, event audit.Event) (bool, error)
}

// RevokeToken revokes a token of the user and redirects to back.
func (h *Settings) RevokeToken(v *Request, store TokenRevoker, token pat.Token, back string) error {
	revoked, err := store.RevokeToken(
		v.R.Context(),
		v.Current.User.ID,
		token.WorkspaceID,
		token.ID,
		pat.ByUser,
		v.Event(
			&token.WorkspaceID,
			audit.TokenRevoked,
			"token:"+token.ID.String(),
			map[string]any{"name": token.Name, "reason": pat.ByUser},
		),
	)
	if err != nil {
		return err
	}
	notice := "The token " + token.Name + " was revoked."
	if !revoked {
		notice = "The token is no longer active."
	}
	return h.Done(v, back, notice)
}
