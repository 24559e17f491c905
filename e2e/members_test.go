package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 7: the members and invitations of a workspace.

func membersOf(workspace demo.Workspace) string {
	return "/v1/account/tenants/" + workspace.ID + "/members"
}

func invitationsOf(workspace demo.Workspace) string {
	return "/v1/account/tenants/" + workspace.ID + "/invitations"
}

func invitationBody(email string, permissions ...string) map[string]any {
	return map[string]any{"email": email, "permissions": permissions}
}

func permissionsBody(permissions ...string) map[string]any {
	return map[string]any{"permissions": permissions}
}

func TestMembers_ChangeAndRemovalTakeEffectAtOnce(t *testing.T) {
	p, ws := inWorkspace(t)
	api, member := p.As(ws.Token), ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes)
	token := p.Database.Token(t, ws.Workspace, member, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := ws.Connector(t, harness.ReadProgrammes).Connect(t, p.Person(t, member))
	one := membersOf(ws.Workspace) + "/" + member.ID
	list := api.Get(t, membersOf(ws.Workspace)).Wants(t, http.StatusOK).Object(t)
	if data, _ := list["data"].([]any); len(data) != 2 || !strings.Contains(string(api.Get(t,
		membersOf(ws.Workspace)).Body), member.Email) {
		t.Errorf("%v", list)
	}
	mine := p.In(ws.Workspace, token)
	mine.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Lunch club"}).Wants(t, http.StatusCreated)
	api.JSON(t, http.MethodPatch, one, permissionsBody(harness.ReadProgrammes)).Wants(t, http.StatusOK)
	mine.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Lunch club"}).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	mine.Get(t, programmes).Wants(t, http.StatusOK)
	api.Send(t, http.MethodDelete, one, "", "").Wants(t, http.StatusNoContent)
	mine.Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusUnauthorized)
	api.Send(t, http.MethodDelete, one, "", "").WantsFlat(t, http.StatusNotFound, "not_found")
}
