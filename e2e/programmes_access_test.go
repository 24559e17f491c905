package e2e

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 5 and 7.2, contract section 6: the order of the checks and their responses. The first check that fails
// decides.

const badQuery = "?limit=0&cursor=nonsense"

func TestAccess_5ChecksParametersThenRecord(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Owner)
	owner.Get(t, programmes+badQuery).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	unknown := programmes + "/" + uuid.NewString()
	owner.Get(t, unknown).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	owner.JSON(t, http.MethodPatch, unknown, map[string]any{"name": ""}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	owner.JSON(t, http.MethodPatch, unknown, map[string]any{"name": "x"}).
		WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	owner.JSON(t, http.MethodPost, unknown+"/transitions", map[string]any{"to": "gone"}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	owner.JSON(t, http.MethodPost, unknown+"/transitions", map[string]any{"to": "active"}).
		WantsNested(t, http.StatusNotFound, "NOT_FOUND")
}

// "read at each request, never from a cache that can be stale": a change affects the next request.
func TestAccess_ReadOnEveryRequest(t *testing.T) {
	p, ws := inWorkspace(t)
	owner, w := p.Person(t, ws.Owner), p.Database
	apis := []harness.API{
		p.In(ws.Workspace, ws.Token),
		p.In(ws.Workspace, ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, owner).AccessToken),
		p.In(ws.Workspace, ws.Connector(t, harness.ReadProgrammes).Connect(t, owner).AccessToken),
	}
	all := func(status int, code string) {
		t.Helper()
		for _, api := range apis {
			if answer := api.Get(t, programmes); status == http.StatusOK {
				answer.Wants(t, status)
			} else {
				answer.WantsNested(t, status, code)
			}
		}
	}
	for range 2 {
		all(http.StatusOK, "")
		w.Permit(t, ws.Workspace, ws.Owner, harness.ReadForms)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.Leave(t, ws.Workspace, ws.Owner)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Join(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.SetModule(t, ws.Workspace, false, true)
		all(http.StatusForbidden, "MODULE_NOT_ENABLED")
		w.SetModule(t, ws.Workspace, true, false)
		all(http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED")
		w.SetModule(t, ws.Workspace, true, true)
	}
}
