package app

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// Step 3: membership, permission, workspace and LLM integration, as they are now.
func TestAPI_RefusesWithoutPermission(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)

	t.Run("another workspace, member there or not, existing or not", func(t *testing.T) {
		bodies := map[string]bool{}
		for _, other := range []uuid.UUID{elsewhere, s.Workspace(), uuid.New(), uuid.Nil} {
			a := s.get(listPath, as(pat, other))
			a.expect(t, 403, "FORBIDDEN", "")
			bodies[a.Body] = true
		}
		if len(bodies) != 1 {
			t.Errorf("the responses distinguish workspaces: %v", bodies)
		}
	})
	t.Run("the token lacks the permission, its user has it", func(t *testing.T) {
		// A personal access token cannot be consented to again: the message says what to do instead.
		a := s.do("POST", listPath, as(pat, workspaceID).json(), `{"name":"x"}`)
		a.expect(t, 403, "FORBIDDEN", "")
		a.has(t, "Create a token")
	})
	t.Run("the grant lacks the permission, its user has it", func(t *testing.T) {
		g := s.Grant(standing.Connector, workspaceID, user, resource, perm.EngageReadForms)
		token := s.token(claims(g))
		registered := func(permissions ...string) {
			s.Exec("update account.oauth_clients set required_permissions = $2 where id = $1", g.Client, permissions)
		}
		registered("engage:read:forms", "programmes:read:programmes", "programmes:write:programmes")
		a := s.do("POST", listPath, as(token, workspaceID).json(), `{"name":"x"}`)
		a.expect(t, 403, "FORBIDDEN", "insufficient_scope")
		// The scope has the token's permissions, the missing one, and the read permission that the write needs.
		if !strings.Contains(
			a.Header.Get("WWW-Authenticate"),
			`scope="programmes:read:programmes programmes:write:programmes engage:read:forms"`,
		) {
			t.Error(a.Header.Get("WWW-Authenticate"))
		}
		// The challenge does not name a permission that the client cannot request.
		registered("engage:read:forms", "programmes:write:programmes")
		a = s.do("POST", listPath, as(token, workspaceID).json(), `{"name":"x"}`)
		if a.expect(t, 403, "FORBIDDEN", "insufficient_scope"); !strings.Contains(
			a.Header.Get("WWW-Authenticate"),
			`scope="programmes:write:programmes engage:read:forms"`,
		) {
			t.Error(a.Header.Get("WWW-Authenticate"))
		}
		registered("engage:read:forms")
		a = s.do("POST", listPath, as(token, workspaceID).json(), `{"name":"x"}`)
		if a.expect(t, 403, "FORBIDDEN", ""); !strings.Contains(a.Body, "connecting again does not help") {
			t.Errorf("the message does not say what would help: %s", a.Body)
		}
	})
	t.Run("the access token's scope is less than its grant", func(t *testing.T) {
		g := s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead, perm.ProgrammesWrite)
		c := claims(g)
		c.Scope = perm.NewSet(perm.ProgrammesWrite)
		s.get(listPath, as(s.token(c), workspaceID)).expect(t, 403, "FORBIDDEN", "insufficient_scope")
	})
	t.Run("the user lost the permission and got it back", func(t *testing.T) {
		s.Member(workspaceID, user)
		a := s.get(listPath, as(pat, workspaceID))
		a.expect(t, 403, "FORBIDDEN", "")
		a.has(t, "administrator")
		s.Member(workspaceID, user, perm.ProgrammesRead)
		s.get(listPath, as(pat, workspaceID)).wants(t, 200)
	})
	t.Run("neither has the permission", func(t *testing.T) {
		s.Member(workspaceID, user, perm.EngageReadForms)
		other := s.PAT(workspaceID, user, perm.EngageReadForms).Reveal()
		s.get(listPath, as(other, workspaceID)).expect(t, 403, "FORBIDDEN", "")
		s.Member(workspaceID, user, perm.ProgrammesRead)
	})
	t.Run("former member", func(t *testing.T) {
		s.RemoveMember(workspaceID, user)
		a := s.get(listPath, as(pat, workspaceID))
		a.expect(t, 403, "FORBIDDEN", "")
		a.has(t, "no longer a member")
	})
}

func TestAPI_LLMIntegrationOffRefusesConnectorsOnly(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	connector := s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)))
	confidential := s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	for _, off := range []string{
		"update account.tenant_features set enabled = false where {mine}",
		"delete from account.tenant_features where {mine}",
	} {
		s.Exec(off)
		s.get(listPath, as(connector, workspaceID)).expect(t, 403, "FORBIDDEN", "")
		for _, token := range []string{confidential, pat} {
			s.get(listPath, as(token, workspaceID)).wants(t, 200)
		}
	}
}

// Step 4: the module, after step 3 and before step 5.
func TestAPI_RequiresEnabledAndProvisionedModule(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.EngageReadForms)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	without := s.PAT(workspaceID, user, perm.EngageReadForms).Reveal()
	connector := s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)))
	s.Exec("update account.tenant_features set enabled = false where {mine}")
	_, stranger := s.reader()
	const set = "update account.tenant_modules set "
	for _, c := range []struct {
		set    string
		status int
		code   string
	}{
		{set + "enabled = true, provisioned = false where {mine}", 503, "TENANT_NOT_PROVISIONED"},
		{set + "enabled = false, provisioned = true where {mine}", 403, "MODULE_NOT_ENABLED"},
		{set + "enabled = false, provisioned = false where {mine}", 403, "MODULE_NOT_ENABLED"},
		{"delete from account.tenant_modules where {mine}", 403, "MODULE_NOT_ENABLED"},
	} {
		s.Exec(c.set)
		for _, path := range []string{listPath, listPath + "?limit=0", listPath + "/" + uuid.NewString()} {
			a := s.get(path, as(pat, workspaceID))
			a.expect(t, c.status, c.code, "")
			if !strings.Contains(a.Body, "operator of this server") &&
				!strings.Contains(a.Body, "administrator who operates this server") {
				t.Errorf("the message does not say who can change this: %s", a.Body)
			}
			a.header(t, "Retry-After", "")
		}
		for _, token := range []string{without, stranger, connector} { // who must not learn the module's state
			for _, path := range []string{listPath, listPath + "?limit=0", listPath + "/" + uuid.NewString()} {
				s.get(path, as(token, workspaceID)).expect(t, 403, "FORBIDDEN", "")
			}
		}
	}
}
