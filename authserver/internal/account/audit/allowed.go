package audit

import (
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
)

// Authorization is what allowed a request when it was checked. The transaction that writes checks it once more, with
// the rows locked, so that a request that waited in between writes nothing by a right that has ended
// (e2e/CHECKS_AND_WRITES.md). The user must still be enabled. The rest counts where it is set.
type Authorization struct {
	UserID      uuid.UUID
	SignInID    uuid.UUID // of a browser: it still counts
	TokenID     uuid.UUID // the personal access token of a request: it is active and has Permissions
	GrantID     uuid.UUID // the grant of an access token, likewise
	WorkspaceID uuid.UUID // the user is a member of it and holds Permissions there
	Permissions perm.Set
}

// ErrNotAuthorized says that what allowed a request has ended since it was checked. Nothing was written.
var ErrNotAuthorized = errors.New("what allowed this has ended since it was checked")
