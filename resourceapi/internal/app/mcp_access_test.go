package app

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// wantsChallenge checks the 401 by which connectors discover the authorization server (connectors.md, Discovery).
func (a answer) wantsChallenge(t *testing.T, code string) {
	t.Helper()
	got := a.Header.Get("WWW-Authenticate")
	if a.Status != 401 || a.code(t) != "UNAUTHENTICATED" || !strings.HasPrefix(got, "Bearer ") ||
		!strings.Contains(got, `resource_metadata="`+mcpMetadata+`"`) ||
		!strings.Contains(got, `scope="programmes:read:programmes"`) ||
		strings.Contains(got, "error=") != (code != "") || !strings.Contains(got, code) {
		t.Errorf("%d %s\n%s", a.Status, a.Body, got)
	}
}

func TestMCP_EveryRequestRequiresCredential(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	rest := s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)))
	confidential := s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	ended := s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.ProgrammesRead)
	s.Exec("update account.grants set state = 'revoked', revoked_at = now() where id = $1", ended.ID)
	expired := claims(s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.ProgrammesRead))
	expired.Expires = time.Now().Add(-time.Minute)
	bodies := everyMessage()
	for name, credential := range map[string]string{
		"none":                          "",
		"rubbish":                       "swordfish",
		"for the REST API":              rest,
		"confidential":                  confidential,
		"of a revoked grant":            s.token(claims(ended)),
		"expired":                       s.token(expired),
		"unknown personal access token": s.unknownPAT(),
		"cut":                           token[:len(token)-4],
	} {
		h, code := assistant(credential), `error="invalid_token"`
		if credential == "" {
			delete(h, "Authorization")
			code = ""
		}
		for _, body := range bodies {
			s.post(h, body).wantsChallenge(t, code)
		}
		s.do("GET", mcpPath, h, "").wantsChallenge(t, code)
		s.do("DELETE", mcpPath, h.with("Mcp-Session-Id", "x"), "").wantsChallenge(t, code)
		if name == "none" {
			s.post(header{}, "").wantsChallenge(t, "")
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		a := s.do(method, mcpPath, assistant(token), "")
		if a.expect(t, 405, "METHOD_NOT_ALLOWED", ""); a.Header.Get("Allow") != "OPTIONS, POST" {
			t.Errorf("Allow: %q", a.Header.Get("Allow"))
		}
	}
	for _, method := range []string{"PUT", "PATCH"} {
		s.do(method, mcpPath, header{}, "").expect(t, 405, "METHOD_NOT_ALLOWED", "")
	}
	s.do("POST", mcpPath+"/", header{}, initialize).wantsChallenge(t, "")
}

// A token for the MCP endpoint is not valid for the REST API; a personal access token is valid for both.
func TestMCP_PersonalAccessTokenUsesOwnWorkspace(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)
	s.Programmes(workspaceID, 2)
	s.Programmes(elsewhere, 5)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	token := s.token(claims(s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.ProgrammesRead)))
	for _, credential := range []string{pat, token} {
		// X-Tenant-Id is ignored here, whatever workspace it names.
		for _, h := range []header{
			assistant(credential), assistant(credential).with("X-Tenant-Id", elsewhere.String()),
			assistant(credential).with("X-Tenant-Id", "rubbish"),
		} {
			for _, arguments := range []map[string]any{{}, {"q": "programme"}} {
				r := s.post(h, calling("list_programmes", arguments)).result(t)
				if strings.Count(string(r.Result.Structured), `"name"`) != 2 {
					t.Errorf("%s", r.Result.Structured)
				}
			}
		}
	}
	for _, end := range []string{"revoked_at = now()", "revoked_at = null, expires_at = now()"} {
		s.Exec("update account.personal_access_tokens set " + end + " where {mine}")
		s.post(assistant(pat), initialize).wantsChallenge(t, `error="invalid_token"`)
	}
}

func TestMCP_AccessIsReadAtEachRequest(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead, perm.EngageReadForms)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	list, who := calling("list_programmes", nil), calling("whoami", nil)
	for _, credential := range []string{token, pat} {
		works := func() {
			t.Helper()
			for _, body := range []string{list, who, initialize} {
				s.post(assistant(credential), body).wants(t, 200).lacks(t, `"isError":true`)
			}
		}
		works()
		s.Member(workspaceID, user, perm.EngageReadForms)
		a := s.post(assistant(credential), list)
		if a.expect(t, 403, "FORBIDDEN", ""); !strings.Contains(a.Body, "administrator") {
			t.Errorf("the message does not say who could help: %s", a.Body)
		}
		s.post(assistant(credential), who).result(t)
		s.Member(workspaceID, user, perm.ProgrammesRead, perm.EngageReadForms)
		works()
		for _, off := range []string{
			"update account.tenant_features set enabled = false where {mine}",
			"delete from account.tenant_features where {mine}",
		} {
			s.Exec(off)
			for _, body := range everyMessage() { // every credential, every message (contract, section 7a)
				s.post(assistant(credential), body).expect(t, 403, "FORBIDDEN", "")
			}
			s.do("GET", mcpPath, assistant(credential), "").expect(t, 403, "FORBIDDEN", "")
		}
		s.Exec(
			"insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)",
			workspaceID,
		)
		works()
		s.RemoveMember(workspaceID, user)
		for _, body := range everyMessage() {
			s.post(assistant(credential), body).expect(t, 403, "FORBIDDEN", "")
		}
		s.Member(workspaceID, user, perm.ProgrammesRead, perm.EngageReadForms)
	}
}

// connectors.md, Token: insufficient_scope only if a new consent could help.
func TestMCP_InsufficientScopeOnlyIfConsentCanHelp(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.EngageReadForms)
	g := s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.EngageReadForms)
	token := s.token(claims(g))
	list := calling("list_programmes", nil)
	insufficient := func() {
		t.Helper()
		a := s.post(assistant(token), list)
		got := a.Header.Get("WWW-Authenticate")
		if a.Status != 403 || a.code(t) != "FORBIDDEN" || !strings.Contains(got, `error="insufficient_scope"`) ||
			!strings.Contains(got, `resource_metadata="`+mcpMetadata+`"`) ||
			!strings.Contains(got, `scope="programmes:read:programmes"`) {
			t.Errorf("%d %s\n%s", a.Status, a.Body, got)
		}
	}
	s.post(assistant(token), list).expect(t, 403, "FORBIDDEN", "") // its client may not request the permission
	s.Exec(
		"update account.oauth_clients set required_permissions = '{programmes:read:programmes,engage:read:forms}' "+
			"where id = $1",
		g.Client,
	)
	insufficient()
	s.Exec(
		"insert into account.connector_policies (tenant_id, platforms, permissions, days) values ($1, '{claude}', "+
			"'{engage:read:forms}', 30)",
		workspaceID,
	)
	s.post(assistant(token), list).expect(t, 403, "FORBIDDEN", "") // the workspace grants it to no connector
	s.Exec(`update account.connector_policies set permissions = '{engage:read:forms,programmes:read:programmes}'
		where {mine}`)
	insufficient()
	s.Exec("update account.connector_policies set platforms = '{chatgpt}' where {mine}")
	s.post(assistant(token), list).expect(t, 403, "FORBIDDEN", "")
	s.Exec("delete from account.connector_policies where {mine}")
	s.Member(workspaceID, user, perm.EngageReadForms) // now the user lacks it too
	s.post(assistant(token), list).expect(t, 403, "FORBIDDEN", "")
	s.Member(workspaceID, user, perm.ProgrammesRead, perm.EngageReadForms)
	insufficient()
	pat := s.PAT(workspaceID, user, perm.EngageReadForms).Reveal()
	s.post(assistant(pat), list).has(t, "Create a token").expect(t, 403, "FORBIDDEN", "")
}

func TestMCP_RefusesTokenThatDisagreesWithItsGrant(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	g := s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.ProgrammesRead)
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)
	s.Programmes(elsewhere, 1)
	for name, change := range map[string]func(*accesstoken.Claims){
		"another workspace":     func(c *accesstoken.Claims) { c.WorkspaceID = elsewhere },
		"another user":          func(c *accesstoken.Claims) { c.Subject = uuid.New() },
		"audience with a slash": func(c *accesstoken.Claims) { c.Audience = mcpResource + "/" },
		"another issuer":        func(c *accesstoken.Claims) { c.Issuer = "https://elsewhere.example" },
	} {
		t.Run(name, func(t *testing.T) {
			c := claims(g)
			change(&c)
			for _, body := range everyMessage() {
				s.post(assistant(s.token(c)), body).wantsChallenge(t, `error="invalid_token"`)
			}
		})
	}
}

// Without Postgres no credential can be checked, and every request gets a 503.
func TestMCP_Returns503WithoutPostgres(t *testing.T) {
	t.Parallel()
	var postgres *wire
	s := ownService(t, silently, through(t, &postgres))
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	id := s.Programmes(workspaceID, 1)[0].String()
	for _, credential := range []string{token, pat} { // the keys are cached now
		s.post(assistant(credential), calling("whoami", nil)).result(t)
	}
	posting := func(bodies map[string]string, credential string) requests {
		all := requests{}
		for name, body := range bodies {
			all[name] = func() answer { return s.post(assistant(credential), body) }
		}
		return all
	}
	get := calling("get_programme", map[string]any{"id": id})
	t.Run("the records cannot be read", func(t *testing.T) {
		s.Exec("begin")
		s.Exec("lock table resource.programmes")
		posting(map[string]string{
			"list":   calling("list_programmes", nil),
			"search": calling("list_programmes", map[string]any{"q": "x"}),
			"get":    get,
		}, token).unavailable(t)
		s.post(assistant(token), calling("whoami", nil)).result(t)
		s.Exec("commit")
	})
	postgres.freeze()
	defer postgres.thaw()
	bodies := map[string]string{"whoami": calling("whoami", nil), "get": get, "malformed": `{`, "start": initialize}
	posting(bodies, token).unavailable(t)
	posting(bodies, pat).unavailable(t)
}
