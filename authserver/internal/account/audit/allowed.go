package audit

import (
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
)

// An Authorization is what allowed a request when it was checked. The transaction that writes checks it again, with the
// rows locked, so that a request that waited in between writes nothing if the right has ended
// (e2e/CHECKS_AND_WRITES.md). The user must still be enabled. The other fields count if they are set.
type Authorization struct {
	UserID      uuid.UUID
	SignInID    uuid.UUID // of a browser: must still be valid
	TokenID     uuid.UUID // the request's personal access token: must be active and have Permissions
	GrantID     uuid.UUID // the access token's grant: must be active and have Permissions
	WorkspaceID uuid.UUID // the user must be a member of it and hold Permissions there
	Permissions perm.Set
}

// Credential returns the id of the credential of the request: its personal access token or the grant of its access
// token.
func (a Authorization) Credential() uuid.UUID {
	if a.TokenID != uuid.Nil {
		return a.TokenID
	}
	return a.GrantID
}

// ErrNotAuthorized reports that what allowed a request has ended since it was checked. Nothing was written.
var ErrNotAuthorized = errors.New("no longer authorized")
