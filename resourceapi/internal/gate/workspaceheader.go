package gate

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
)

// WorkspaceHeader names the workspace of a request (spec 5.1).
const WorkspaceHeader = "X-Tenant-Id"

// readWorkspace returns the workspace of the single X-Tenant-Id header. The error is an *apierr.Error.
func readWorkspace(h http.Header) (uuid.UUID, error) {
	values := h.Values(WorkspaceHeader)
	if len(values) == 1 {
		if workspaceID, err := identity.Parse(values[0]); err == nil {
			return workspaceID, nil
		}
	}
	problem := "X-Tenant-Id must be a UUID"
	switch {
	case len(values) == 0:
		problem = "X-Tenant-Id is missing"
	case len(values) > 1:
		problem = "X-Tenant-Id was sent more than once"
	}
	return uuid.Nil, apierr.New(apierr.Invalid,
		problem+": the tenant header is required. Send it once, with the workspace identifier from Settings, User.")
}
