package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const resource = base + "/v1"

// expect checks a refusal: status, code, and its challenge.
func (a answer) expect(t testing.TB, status int, code, challenge string) answer {
	t.Helper()
	if a.Status != status || a.code(t) != code {
		a.fail(t, strconv.Itoa(status)+" "+code)
	}
	const named = `resource_metadata="` + metadata + `"`
	got := a.Header.Get("WWW-Authenticate")
	switch {
	case challenge == "" && got != "":
		t.Errorf("unexpected challenge: %s", got)
	case challenge == "none" && (strings.Contains(got, "error=") || !strings.Contains(got, named) ||
		!strings.HasPrefix(got, `Bearer realm="almoner"`)):
		t.Errorf("not the challenge of a request without a token: %s", got)
	case challenge != "" && challenge != "none" &&
		(!strings.Contains(got, `error="`+challenge+`"`) || !strings.Contains(got, named)):
		t.Errorf("not a challenge of %s: %s", challenge, got)
	}
	a.header(t, "Cache-Control", "no-store").header(t, "X-Content-Type-Options", "nosniff").
		header(t, "X-Request-Id", "*")
	return a
}

// metadata is the resource_metadata of every challenge.
const metadata = base + "/.well-known/oauth-protected-resource/v1"

// Step 1 of the contract's table: the bearer token.
func TestAPI_RequiresOneValidBearerToken(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	flipped := pat[:20] + string('A'+(pat[20]-'A'+1)%26) + pat[21:]
	cases := []struct {
		name      string
		values    []string
		challenge string
	}{
		{"no header", nil, "none"},
		{"empty header", []string{""}, "none"},
		{"another scheme", []string{"Basic dXNlcjpwYXNz"}, "none"},
		{"scheme alone", []string{"Bearer"}, "none"},
		{"token without scheme", []string{pat}, "none"},
		{"two headers", []string{"Bearer " + pat, "Bearer " + pat}, "invalid_token"},
		{"something behind the token", []string{"Bearer " + pat + " x"}, "invalid_token"},
		{"two tokens in one header", []string{"Bearer " + pat + ", Bearer " + pat}, "invalid_token"},
		{"tab for space", []string{"Bearer\t" + pat}, "none"},
		{"no token of ours", []string{"Bearer swordfish"}, "invalid_token"},
		{"checksum wrong", []string{"Bearer " + flipped}, "invalid_token"},
		{"cut", []string{"Bearer " + pat[:len(pat)-1]}, "invalid_token"},
		{"unknown", []string{"Bearer " + s.unknownPAT()}, "invalid_token"},
		{"a refresh token", []string{"Bearer alm_rt_abcdefghijklmnopqrstuvwxyz"}, "invalid_token"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{"X-Tenant-Id": {workspaceID.String()}}
			if c.values != nil {
				h["Authorization"] = c.values
			}
			s.send("GET", listPath, h, "").expect(t, 401, "UNAUTHENTICATED", c.challenge)
		})
	}
	for _, spelled := range []string{"Bearer ", "bearer ", "BEARER ", "Bearer   "} {
		s.get(listPath, as(pat, workspaceID).with("Authorization", spelled+pat)).wants(t, 200)
	}
	t.Run("in the query or body", func(t *testing.T) {
		s.get(listPath+"?access_token="+pat, header{"X-Tenant-Id": workspaceID.String()}).
			expect(t, 401, "UNAUTHENTICATED", "none")
		s.do("POST", listPath, header{
			"X-Tenant-Id":  workspaceID.String(),
			"Content-Type": "application/x-www-form-urlencoded",
		},
			"access_token="+pat).
			expect(t, 401, "UNAUTHENTICATED", "none")
	})
}

func (s *service) unknownPAT() string {
	workspaceID, user := s.member()
	token := s.PAT(workspaceID, user).Reveal()
	s.Exec("delete from account.personal_access_tokens where user_id = $1", user)
	return token
}

func TestAPI_RefusesEndedCredential(t *testing.T) {
	s := newService(t)
	const disable = `update account.users set disabled_at = now()
		where id in (select user_id from account.memberships where {mine})`
	const revoke = "update account.grants set state = 'revoked', revoked_at = now() where {mine}"
	pat := func(s *service, workspaceID, user uuid.UUID) string {
		return s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	}
	grant := func(s *service, workspaceID, user uuid.UUID) string {
		return s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	}
	for name, c := range map[string]struct {
		credential func(s *service, workspaceID, user uuid.UUID) string
		end        string
	}{
		"token revoked":            {pat, "update account.personal_access_tokens set revoked_at = now() where {mine}"},
		"token expired":            {pat, "update account.personal_access_tokens set expires_at = now() where {mine}"},
		"token of a disabled user": {pat, disable},
		"grant revoked":            {grant, revoke},
		"grant ended":              {grant, "update account.grants set ends_at = now() where {mine}"},
		"grant pending":            {grant, "update account.grants set state = 'pending' where {mine}"},
		"grant gone":               {grant, "delete from account.grants where {mine}"},
		"grant of a disabled user": {grant, disable},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.forTest(t)
			workspaceID, user := s.member(perm.ProgrammesRead)
			h := as(c.credential(s, workspaceID, user), workspaceID)
			s.get(listPath, h).wants(t, 200)
			s.Exec(c.end)
			s.get(listPath, h).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		})
	}
}

func TestAPI_RefusesTokenThatDisagreesWithItsGrant(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	g := s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)
	other := s.Workspace()
	for name, change := range map[string]func(*accesstoken.Claims){
		"another issuer":            func(c *accesstoken.Claims) { c.Issuer = "https://elsewhere.example" },
		"issuer with a slash":       func(c *accesstoken.Claims) { c.Issuer = base + "/" },
		"audience of the connector": func(c *accesstoken.Claims) { c.Audience = base + "/mcp" },
		"audience with a slash":     func(c *accesstoken.Claims) { c.Audience = resource + "/" },
		"audience in another case":  func(c *accesstoken.Claims) { c.Audience = strings.ToUpper(resource) },
		"expired":                   func(c *accesstoken.Claims) { c.Expires = time.Now().Add(-time.Minute) },
		"issued tomorrow":           func(c *accesstoken.Claims) { c.IssuedAt = time.Now().Add(24 * time.Hour) },
		"another user":              func(c *accesstoken.Claims) { c.Subject = uuid.New() },
		"another client":            func(c *accesstoken.Claims) { c.ClientID = uuid.NewString() },
		"a client that is no id":    func(c *accesstoken.Claims) { c.ClientID = "https://app.example" },
		"another workspace":         func(c *accesstoken.Claims) { c.WorkspaceID = other },
		"an unknown grant":          func(c *accesstoken.Claims) { c.GrantID = uuid.New() },
	} {
		t.Run(name, func(t *testing.T) {
			c := claims(g)
			change(&c)
			s.get(listPath, as(s.token(c), workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		})
	}
	t.Run("another key of the same name", func(t *testing.T) {
		s.get(listPath, as(newKey(t, "key-1").sign(t, claims(g)), workspaceID)).
			expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	})
	t.Run("a grant for the connector's resource, a token for this one", func(t *testing.T) {
		mcp := s.Grant(standing.Connector, workspaceID, user, base+"/mcp", perm.ProgrammesRead)
		c := claims(mcp)
		c.Audience = resource
		s.get(listPath, as(s.token(c), workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		s.get(listPath, as(s.token(claims(mcp)), workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	})
}

func TestAPI_AcceptsEveryKindOfCredential(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	s.Programmes(workspaceID, 3)
	grant := func(kind string) string {
		return s.token(claims(s.Grant(kind, workspaceID, user, resource, perm.ProgrammesRead)))
	}
	for name, token := range map[string]string{
		"personal access token": s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(),
		"confidential":          grant(standing.Confidential),
		"connector":             grant(standing.Connector),
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time the signature is cached
				if a := s.get(listPath, as(token, workspaceID)); a.Status != 200 || strings.Count(a.Body, `"id"`) != 3 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			}
		})
	}
}

// The settings page shows when a credential was last used, even if the request was refused.
func TestAPI_RecordsCredentialUse(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member()
	used, unused := s.PAT(workspaceID, user), s.PAT(workspaceID, user)
	app := orFail(New(t.Context(), s.config, slog.New(slog.DiscardHandler)))(t)
	for _, token := range []string{used.Reveal(), unused.Reveal() + "x"} {
		request := httptest.NewRequest("GET", listPath, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		app.Handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	app.Close() // records the uses
	const recorded = `select count(*) from account.token_uses u
		join account.personal_access_tokens p on p.tenant_id = u.tenant_id and p.id = u.token_id where p.{mine}`
	s.Wants(1, recorded+" and hash = $1", credential.Hash(used.Reveal()))
	s.Wants(1, recorded)
}

// Step 2: the workspace is named. It is checked only if the credential is valid.
func TestAPI_RequiresWorkspaceHeader(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	good := workspaceID.String()
	for name, values := range map[string][]string{
		"none":       nil,
		"empty":      {""},
		"no UUID":    {"main"},
		"braces":     {"{" + good + "}"},
		"no hyphens": {strings.ReplaceAll(good, "-", "")},
		"urn":        {"urn:uuid:" + good},
		"twice":      {good, good},
		"a list":     {good + "," + good},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"Authorization": {"Bearer " + pat}}
			if values != nil {
				h["X-Tenant-Id"] = values
			}
			problem := "X-Tenant-Id must be a UUID"
			switch {
			case values == nil:
				problem = "X-Tenant-Id is missing"
			case len(values) > 1:
				problem = "X-Tenant-Id was sent more than once"
			}
			for _, path := range []string{listPath, listPath + "?limit=0"} { // before the parameters
				s.send("GET", path, h, "").
					expect(t, 400, "VALIDATION_ERROR", "").
					has(t, problem+": the tenant header is required")
			}
			h.Set("Authorization", "Bearer "+s.unknownPAT())
			s.send("GET", listPath, h, "").expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		})
	}
	s.get(listPath, as(pat, workspaceID).with("X-Tenant-Id", strings.ToUpper(good))).wants(t, 200)
}

// Before step 1: paths and methods.
func TestRoutes_CheckPathAndMethodBeforeCredential(t *testing.T) {
	s := newService(t)
	for _, path := range []string{
		"/",
		"/v1",
		"/v1/programmes",
		listPath + "/",
		"//v1/programmes/programmes",
		"/v1/programmes//programmes",
		"/v1/./programmes/programmes",
		"/v1/x/../programmes/programmes",
		"/v1/programmes/%70rogrammes",
		"/V1/programmes/programmes",
		"/programmes/programmes",
		listPath + "/a/b",
		listPath + "/a/transitions/",
		"/.well-known/oauth-protected-resource/",
		"/.well-known/oauth-protected-resource/v2",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			s.do(method, path, nil, "").expect(t, 404, "NOT_FOUND", "")
		}
	}
	id := uuid.NewString()
	for path, allow := range map[string]string{
		listPath:                                   "GET, HEAD, POST",
		listPath + "/" + id:                        "DELETE, GET, HEAD, PATCH",
		listPath + "/" + id + "/transitions":       "POST",
		listPath + "/imports":                      "POST",
		listPath + "/imports/" + id:                "GET, HEAD",
		"/.well-known/oauth-protected-resource/v1": "GET, HEAD, OPTIONS",
		"/healthz":                                 "GET, HEAD",
		"/readyz":                                  "GET, HEAD",
	} {
		a := s.do("BREW", path, nil, "")
		a.expect(t, 405, "METHOD_NOT_ALLOWED", "")
		a.header(t, "Allow", allow)
	}
}

// Step 3: membership, permission, workspace and LLM integration, as they are now.
func TestAPI_RefusesWithoutPermission(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)

	t.Run("another workspace, member there or not, existing or not", func(t *testing.T) {
		first := s.get(listPath, as(pat, elsewhere)).expect(t, 403, "FORBIDDEN", "")
		for _, other := range []uuid.UUID{s.Workspace(), uuid.New(), uuid.Nil} {
			s.get(listPath, as(pat, other)).expect(t, 403, "FORBIDDEN", "").is(t, first.Body)
		}
	})
	t.Run("the token lacks the permission, its user has it", func(t *testing.T) {
		// A personal access token cannot be consented to again: the message says what to do instead.
		s.do("POST", listPath, as(pat, workspaceID).json(), `{"name":"x"}`).
			expect(t, 403, "FORBIDDEN", "").has(t, "Create a token")
	})
	t.Run("the grant lacks the permission, its user has it", func(t *testing.T) {
		g := s.Grant(standing.Connector, workspaceID, user, resource, perm.EngageReadForms)
		h := as(s.token(claims(g)), workspaceID).json()
		creates := func(registered ...string) answer {
			t.Helper()
			s.Exec("update account.oauth_clients set required_permissions = $2 where id = $1", g.Client, registered)
			return s.do("POST", listPath, h, `{"name":"x"}`)
		}
		// The scope has the token's permissions, the missing one, and the read permission that the write needs.
		creates("engage:read:forms", "programmes:read:programmes", "programmes:write:programmes").
			expect(t, 403, "FORBIDDEN", "insufficient_scope").hasInHeader(t, "WWW-Authenticate",
			`scope="programmes:read:programmes programmes:write:programmes engage:read:forms"`)
		// The challenge does not name a permission that the client cannot request.
		creates("engage:read:forms", "programmes:write:programmes").
			expect(t, 403, "FORBIDDEN", "insufficient_scope").
			hasInHeader(t, "WWW-Authenticate", `scope="programmes:write:programmes engage:read:forms"`)
		creates("engage:read:forms").expect(t, 403, "FORBIDDEN", "").has(t, "connecting again does not help")
	})
	t.Run("the access token's scope is less than its grant", func(t *testing.T) {
		c := claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead, perm.ProgrammesWrite))
		c.Scope = perm.NewSet(perm.ProgrammesWrite)
		s.get(listPath, as(s.token(c), workspaceID)).expect(t, 403, "FORBIDDEN", "insufficient_scope")
	})
	t.Run("the user lost the permission and got it back", func(t *testing.T) {
		s.Member(workspaceID, user)
		s.get(listPath, as(pat, workspaceID)).expect(t, 403, "FORBIDDEN", "").has(t, "administrator")
		s.Member(workspaceID, user, perm.ProgrammesRead)
		s.get(listPath, as(pat, workspaceID)).wants(t, 200)
	})
	t.Run("neither has the permission", func(t *testing.T) {
		s.Member(workspaceID, user, perm.EngageReadForms)
		s.get(listPath, s.holding(workspaceID, user, perm.EngageReadForms)).expect(t, 403, "FORBIDDEN", "")
		s.Member(workspaceID, user, perm.ProgrammesRead)
	})
	t.Run("former member", func(t *testing.T) {
		s.RemoveMember(workspaceID, user)
		s.get(listPath, as(pat, workspaceID)).expect(t, 403, "FORBIDDEN", "").has(t, "no longer a member")
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
