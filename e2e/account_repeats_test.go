package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Each write of the account API can be repeated with its Idempotency-Key: it takes effect once (contract, section 6).
func TestRepeat_AccountWritesTakeEffectOnce(t *testing.T) {
	p, ws := inWorkspace(t)
	member := ws.Member(t, harness.ReadProgrammes)
	tenant := "/v1/account/tenants/" + ws.Workspace.ID
	api := p.As(ws.Token)
	application := map[string]any{
		"name":                "Donor sync",
		"redirectUris":        []string{"https://sync.example.org/callback"},
		"requiredPermissions": []string{harness.ReadProgrammes},
	}
	permissions := []string{harness.ReadProgrammes}
	client := api.JSON(t, http.MethodPost, tenant+"/oauth-clients", application).Wants(t, 201).Object(t)
	one := tenant + "/oauth-clients/" + client["clientId"].(string)
	// The invitation is replaced by the repeated one for the same address.
	invitation := api.JSON(t, http.MethodPost, tenant+"/invitations",
		map[string]any{"email": "kim@example.org", "permissions": permissions}).Wants(t, 201).Object(t)
	for _, write := range []struct {
		method, path string
		body         any
		status       int
	}{
		{http.MethodPost, tenant + "/oauth-clients", application, http.StatusCreated},
		{http.MethodPost, one + "/secret", map[string]any{}, http.StatusOK},
		{http.MethodDelete, one, "", http.StatusNoContent},
		{http.MethodPost, tenant + "/invitations", map[string]any{
			"email": "sam@example.org", "permissions": permissions,
		}, http.StatusCreated},
		{http.MethodDelete, tenant + "/invitations/" + invitation["id"].(string), "", http.StatusNoContent},
		{http.MethodPatch, tenant + "/members/" + member.ID, map[string]any{"permissions": permissions}, http.StatusOK},
		{http.MethodDelete, tenant + "/members/" + member.ID, "", http.StatusNoContent},
	} {
		t.Run(write.method+" "+write.path, func(t *testing.T) {
			once := api.With("Idempotency-Key", harness.NewKey())
			first := once.JSON(t, write.method, write.path, write.body).Wants(t, write.status)
			again := once.JSON(t, write.method, write.path, write.body).Wants(t, write.status)
			if string(again.Body) != string(first.Body) || first.Header.Get("Idempotency-Replayed") != "" ||
				again.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("the second response does not repeat the first:\n%s", again)
			}
			once.JSON(t, write.method, write.path, `{"other":1}`).WantsFlat(t, http.StatusConflict, "conflict")
			once.JSON(t, write.method, write.path, strings.Repeat(" ", 70<<10)).
				WantsFlat(t, http.StatusRequestEntityTooLarge, "invalid_request")
			api.With("Idempotency-Key", "two words").JSON(t, write.method, write.path, write.body).
				WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
	}
}
