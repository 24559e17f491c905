package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.2 and 5.2, contract, section 5: registered applications.

func TestRegister_WorkspaceIsFromURL(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	caller := p.As(ws.Token).With("X-Tenant-Id", other.Workspace.ID)
	caller.JSON(t, http.MethodPost, ws.Clients(), harness.ConfidentialBody(harness.ReadProgrammes)).
		Wants(t, http.StatusCreated)
	if list := p.As(other.Token).Get(t, other.Clients()).Object(t)["data"].([]any); len(list) != 0 {
		t.Error("the tenant header had an effect on an account route")
	}
}

// "Registering an application does not by itself authorise access to user data." (spec 5.2)
func TestRegistered_AloneAuthorizesNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	for _, bearer := range []string{app.ClientSecret, app.ClientID, app.ClientID + ":" + app.ClientSecret} {
		p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	body := map[string]any{
		"grant_type":    "client_credentials",
		"client_id":     app.ClientID,
		"client_secret": app.ClientSecret,
	}
	app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "unsupported_grant_type")
}
