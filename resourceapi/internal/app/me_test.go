package app

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

const mePath = "/v1/me"

type meRecord struct {
	User       struct{ ID, Name, Email string }
	Credential struct {
		Type, Name string
		ExpiresAt  time.Time
	}
	Workspaces []struct {
		ID          uuid.UUID
		Name        string
		Permissions []string
	}
	Limits map[string]int
}

func (s *service) me(token string) meRecord {
	s.t.Helper()
	a := s.get(mePath, header{"Authorization": "Bearer " + token})
	if a.Status != 200 {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	var m meRecord
	a.decode(s.t, &m)
	return m
}

func TestMe_PersonalAccessToken(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.EngageReadForms)
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)
	token := s.PAT(workspaceID, user, perm.ProgrammesRead, perm.ProgrammesWrite).Reveal()
	m := s.me(token)
	if m.User.ID != user.String() || m.User.Email == "" || m.User.Name == "" ||
		m.Credential.Type != "personal_access_token" || m.Credential.Name == "" ||
		m.Credential.ExpiresAt.Before(time.Now()) || m.Limits["requestsInFlight"] != 64 {
		t.Errorf("%+v", m)
	}
	if len(m.Workspaces) != 1 || m.Workspaces[0].ID != workspaceID || m.Workspaces[0].Name == "" ||
		!slices.Equal(m.Workspaces[0].Permissions, []string{"programmes:read:programmes"}) {
		t.Errorf("not the workspace of the token, with token and user's permissions: %+v", m.Workspaces)
	}
	s.Member(workspaceID, user)
	if m = s.me(token); len(m.Workspaces) != 1 || m.Workspaces[0].Permissions == nil ||
		len(m.Workspaces[0].Permissions) > 0 {
		t.Errorf("a member without permissions: %+v", m.Workspaces)
	}
	s.RemoveMember(workspaceID, user)
	if m = s.me(token); m.Workspaces == nil || len(m.Workspaces) > 0 {
		t.Errorf("no member: %+v", m.Workspaces)
	}
}

func TestMe_AccessToken(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	g := s.Grant(standing.Connector, workspaceID, user, base+"/v1", perm.ProgrammesRead, perm.ProgrammesWrite)
	c := claims(g)
	c.Scope = perm.NewSet(perm.ProgrammesRead)
	m := s.me(s.token(c))
	if m.User.ID != user.String() || m.Credential.Type != "access_token" || m.Credential.Name == "" ||
		m.Credential.ExpiresAt.Unix() != c.Expires.Unix() {
		t.Errorf("%+v", m)
	}
	if len(m.Workspaces) != 1 || !slices.Equal(m.Workspaces[0].Permissions, []string{"programmes:read:programmes"}) {
		t.Errorf("not the token's permissions: %+v", m.Workspaces)
	}
	s.Exec("update account.tenant_features set enabled = false where {mine}")
	if m = s.me(s.token(c)); len(m.Workspaces) > 0 {
		t.Errorf("a connector's token while LLM integration is off: %+v", m.Workspaces)
	}
	foreign := claims(g)
	foreign.Audience = base + "/mcp"
	a := s.get(mePath, header{"Authorization": "Bearer " + s.token(foreign)})
	a.expect(t, 401, "UNAUTHENTICATED", "invalid_token")
}

func TestMe_Refusals(t *testing.T) {
	s := newService(t)
	workspaceID, token := s.reader()
	s.get(mePath, nil).expect(t, 401, "UNAUTHENTICATED", "none")
	s.get(mePath+"?limit=5", header{"Authorization": "Bearer x"}).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.get(mePath+"?limit=5", as(token, workspaceID)).expect(t, 400, "VALIDATION_ERROR", "")
	s.get(mePath, as(token, uuid.New())).wants(t, 200)
	s.Exec("update account.personal_access_tokens set revoked_at = now() where {mine}")
	s.get(mePath, as(token, workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
}
