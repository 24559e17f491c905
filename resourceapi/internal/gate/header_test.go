package gate

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// FuzzWorkspace checks that only one header with an RFC 9562 identifier, in either case, names a workspace.
func FuzzWorkspace(f *testing.F) {
	for _, seed := range []string{
		"", "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f", "0190C5D2-7F3A-7C11-9D0E-1A2B3C4D5E6F",
		"{0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f}", "0190c5d27f3a7c119d0e1a2b3c4d5e6f",
		"urn:uuid:0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f", "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f ",
	} {
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, twice bool) {
		h := http.Header{"X-Tenant-Id": {text}}
		if twice {
			h.Add("X-Tenant-Id", text)
		}
		workspaceID, err := readWorkspace(h)
		valid := strings.EqualFold(workspaceID.String(), text) && (workspaceID != uuid.Nil || text == uuid.Nil.String())
		if (err == nil) != (!twice && valid) {
			t.Errorf("%q gave %s, %v", text, workspaceID, err)
		}
		if err != nil && apierr.Of(err).Status() != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", text, apierr.Of(err).Status())
		}
	})
}

// Step 2: the workspace is named once.
func TestReadWorkspace_SaysWhatIsWrongWithHeader(t *testing.T) {
	id := uuid.NewString()
	for want, values := range map[string][]string{
		"X-Tenant-Id is missing: the tenant header is required":             nil,
		"X-Tenant-Id must be a UUID: the tenant header is required":         {"main"},
		"X-Tenant-Id was sent more than once: the tenant header is require": {id, id},
	} {
		_, err := readWorkspace(http.Header{"X-Tenant-Id": values})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", values, err, want)
		}
	}
}
