package gate

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
)

// TenantHeader names the workspace that a request acts in (spec 5.1).
const TenantHeader = "X-Tenant-Id"

// readTenant returns the workspace of the one header. It returns an *apierr.Error.
func readTenant(h http.Header) (uuid.UUID, error) {
	values := h.Values(TenantHeader)
	if len(values) == 1 {
		if tenant, err := identity.Parse(values[0]); err == nil {
			return tenant, nil
		}
	}
	return uuid.Nil, apierr.New(apierr.Invalid, "Name the workspace: the tenant header is required, X-Tenant-Id, once, as the identifier shown in Settings, User.")
}
