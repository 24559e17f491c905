package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

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

// Each route refuses in the order of section 5: bearer, workspace and permission, body, object.
func TestMembers_OrderOfChecks(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	reads := p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess, harness.ReadMembers)
	writes := p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess, harness.WriteMembers)
	noAPI := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadMembers, harness.WriteMembers)
	unknown := "/" + uuid.NewString()
	for _, route := range []struct{ method, path, needs string }{
		{http.MethodGet, membersOf(ws.Workspace), reads},
		{http.MethodPatch, membersOf(ws.Workspace) + unknown, writes},
		{http.MethodDelete, membersOf(ws.Workspace) + unknown, writes},
		{http.MethodGet, invitationsOf(ws.Workspace), reads},
		{http.MethodPost, invitationsOf(ws.Workspace), writes},
		{http.MethodDelete, invitationsOf(ws.Workspace) + unknown, writes},
	} {
		send := func(api harness.API) harness.Answer {
			return api.Send(t, route.method, route.path, "application/json", "{")
		}
		wantsGateway(t, send(p.API()), http.StatusUnauthorized, "Unauthorized")
		wantsGateway(t, send(p.As("nonsense")), http.StatusForbidden, "Forbidden")
		for _, token := range []string{other.Token, noAPI, reads, writes} {
			if token != route.needs {
				send(p.As(token)).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			}
		}
		answer := send(p.As(route.needs))
		switch route.method {
		case http.MethodGet:
			answer.Wants(t, http.StatusOK)
		case http.MethodDelete:
			answer.WantsFlat(t, http.StatusNotFound, "not_found")
		default:
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_request")
		}
	}
}

func TestMembers_ChangeAndRemovalTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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

func TestMembers_CannotGivePermissionsTheyLack(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	manager := ws.Member(t, harness.APIAccess, harness.WriteMembers, harness.ReadProgrammes)
	member := ws.Member(t, harness.ReadForms)
	one := membersOf(ws.Workspace) + "/" + member.ID
	for name, token := range map[string]string{
		"user lacks it":  p.Database.Token(t, ws.Workspace, manager, harness.Everything()...),
		"token lacks it": p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess, harness.WriteMembers),
	} {
		t.Run(name, func(t *testing.T) {
			api := p.As(token)
			api.JSON(t, http.MethodPatch, one, permissionsBody(harness.ReadForms, harness.WriteForms)).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.JSON(t, http.MethodPost, invitationsOf(ws.Workspace),
				invitationBody("sam@example.org", harness.WriteForms)).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			own := membersOf(ws.Workspace) + "/" + manager.ID
			api.JSON(t, http.MethodPatch, own, permissionsBody(harness.Everything()...)).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		})
	}
}

func TestMembers_LastHolderStays(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	own := membersOf(ws.Workspace) + "/" + ws.Owner.ID
	api := p.As(ws.Token)
	api.Send(t, http.MethodDelete, own, "", "").WantsFlat(t, http.StatusConflict, "conflict")
	api.JSON(t, http.MethodPatch, own, permissionsBody(harness.APIAccess, harness.ReadMembers)).
		WantsFlat(t, http.StatusConflict, "conflict")
	ws.Member(t, harness.WriteMembers)
	api.Send(t, http.MethodDelete, own, "", "").WantsFlat(t, http.StatusConflict, "conflict") // of the API access
	ws.Member(t, harness.APIAccess, harness.ReadMembers)
	api.Send(t, http.MethodDelete, own, "", "").Wants(t, http.StatusNoContent)
}

func TestInvitations_AreInvitedListedAndWithdrawn(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api, all := p.As(ws.Token), invitationsOf(ws.Workspace)
	invited := api.JSON(t, http.MethodPost, all, invitationBody("Sam@example.org", harness.ReadProgrammes)).
		Wants(t, http.StatusCreated).
		WantsKeys(t, "id", "email", "permissions", "invitedBy", "createdAt", "expiresAt", "url")
	if link, _ := invited["url"].(string); !strings.HasPrefix(link, p.AppURL+"/invitation?token=") ||
		invited["email"] != "sam@example.org" {
		t.Error("the invitation has no link, or another address")
	} else if parsed, err := url.Parse(link); err == nil {
		met.Add("invitation token", parsed.Query().Get("token"))
	}
	one := all + "/" + invited["id"].(string)
	list := api.Get(t, all).Wants(t, http.StatusOK)
	if data, _ := list.Object(t)["data"].([]any); len(data) != 1 || strings.Contains(string(list.Body), "token") {
		t.Errorf("%d invitations, or a link in the list", len(data))
	}
	api.JSON(t, http.MethodPost, all, invitationBody(ws.Owner.Email, harness.ReadProgrammes)).
		WantsFlat(t, http.StatusConflict, "conflict")
	for _, body := range []map[string]any{
		invitationBody("sam", harness.ReadProgrammes),
		invitationBody("sam@example.org"),
		invitationBody("sam@example.org", "programmes:delete:all"),
	} {
		api.JSON(t, http.MethodPost, all, body).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	}
	api.Send(t, http.MethodDelete, one, "", "").Wants(t, http.StatusNoContent)
	api.Send(t, http.MethodDelete, one, "", "").WantsFlat(t, http.StatusNotFound, "not_found")
}
