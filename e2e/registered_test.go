package e2e

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
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

// "Registering an application does not by itself authorise access to user data." (spec 5.2) Nor does a service, which
// only an administrator's command creates, have access to anything but introspection (contract, section 5).
func TestRegistered_AloneAuthorizesNothing(t *testing.T) {
	p, ws := inWorkspace(t)
	for name, c := range map[string]demo.Client{
		"application": ws.Confidential(t, "", harness.ReadProgrammes).Client, "service": p.DemoService().Client,
	} {
		t.Run(name, func(t *testing.T) {
			for _, bearer := range []string{c.ClientSecret, c.ClientID, c.ClientID + ":" + c.ClientSecret} {
				p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
			}
			basic := p.API().With("Authorization", harness.Basic(c.ClientID, c.ClientSecret))
			wantsGateway(t, basic.Get(t, ws.Clients()), http.StatusUnauthorized, "Unauthorized")
			body := map[string]any{"client_id": c.ClientID, "client_secret": c.ClientSecret}
			body["grant_type"] = "client_credentials"
			p.API().JSON(t, http.MethodPost, harness.TokenPath, body).
				WantsFlat(t, http.StatusBadRequest, "unsupported_grant_type", "invalid_client", "unauthorized_client")
			for _, grant := range []string{"client_credentials", "authorization_code", "refresh_token"} {
				form := url.Values{"grant_type": {grant}, "code": {"x"}, "redirect_uri": {"https://x.example/"}}
				form.Set("refresh_token", "x")
				if answer := basic.Form(t, harness.TokenPath, form); answer.Status != http.StatusBadRequest &&
					answer.Status != http.StatusUnauthorized {
					t.Errorf("at the token endpoint:\n%s", answer)
				}
			}
		})
	}
}
