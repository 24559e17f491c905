package gate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// The contract's table (section 6): a request with several faults gets the answer of the first.
func TestGuard_AnswersFirstFaultOfRequest(t *testing.T) {
	s := newSite(t)
	s.Exec("update account.tenant_modules set enabled = false where tenant_id = $1", s.workspaceID)
	credential, workspace := "", ""
	plan, _ := s.served()(nil, uuid.Nil)
	serve := plan.Serve
	plan.Serve = func(http.ResponseWriter, *http.Request, Caller) error {
		return apierr.New(apierr.NotFound, "There is no such record.")
	}
	invalid := error(apierr.New(apierr.Invalid, "limit is not a number."))
	guard := s.api.Guard(perm.ProgrammesRead, func(*http.Request, uuid.UUID) (Plan, error) { return plan, invalid })
	for _, c := range []struct {
		answer, message string
		correct         func() // the fault, for the next request
	}{
		{"401 UNAUTHENTICATED", "no credential", func() {
			credential = s.PAT(s.workspaceID, s.user, perm.EngageReadForms).Reveal()
		}},
		{"400 VALIDATION_ERROR", "the tenant header is required", func() { workspace = s.workspaceID.String() }},
		{"403 FORBIDDEN", "this personal access token does not", func() { credential = s.pat }},
		{"403 MODULE_NOT_ENABLED", "not enabled", func() {
			s.Exec("update account.tenant_modules set enabled = true, provisioned = false where tenant_id = $1",
				s.workspaceID)
		}},
		{"503 TENANT_NOT_PROVISIONED", "", func() {
			s.Exec("update account.tenant_modules set provisioned = true where tenant_id = $1", s.workspaceID)
		}},
		{"400 VALIDATION_ERROR", "limit", func() { invalid = nil }},
		{"404 NOT_FOUND", "no such record", func() { plan.Serve = serve }},
		{"204 ", "", func() {}},
	} {
		a := send(t, guard, "/", credential, workspace)
		if got := strconv.Itoa(a.Code) + " " + a.code; got != c.answer || !strings.Contains(a.message, c.message) {
			t.Errorf("%s %q, want %s %q", got, a.message, c.answer, c.message)
		}
		c.correct()
	}
}

// Step 1: a credential that is missing, invalid, expired, revoked or made for another resource.
func TestGuard_RefusesInvalidCredential(t *testing.T) {
	s := newSite(t)
	token := func(change func(*accesstoken.Claims)) string {
		return s.grant(standing.Confidential, perm.API, change, perm.ProgrammesRead)
	}
	ended := func(sql string) string {
		pat := s.PAT(s.workspaceID, s.user, perm.ProgrammesRead).Reveal()
		s.Exec("update account.personal_access_tokens set "+sql+
			" where id = (select max(id::text)::uuid from account.personal_access_tokens where user_id = $1)", s.user)
		return pat
	}
	endedGrant := func(sql string) string {
		return token(func(c *accesstoken.Claims) {
			s.Exec("update account.grants set "+sql+" where id = $1", c.GrantID)
		})
	}
	var real accesstoken.Claims
	_ = token(func(c *accesstoken.Claims) { real = *c })
	forged, past := newKey(t, postgrestest.KeyID).sign(t, real), time.Now().Add(-time.Minute)
	const invalid, expired, other = "not valid", "expired. Get a new one", "for another resource"
	for what, c := range map[string]struct{ credential, message string }{
		"two tokens":                {s.pat + " " + s.pat, "one bearer token"},
		"no token of this server":   {"swordfish", invalid},
		"strange character":         {s.pat[:len(s.pat)-1] + "!", "one bearer token"},
		"checksum wrong":            {s.miscopied(), invalid},
		"cut":                       {s.pat[:len(s.pat)-1], invalid},
		"revoked":                   {ended("revoked_at = now()"), invalid},
		"expired":                   {ended("expires_at = now()"), expired},
		"access token, forged":      {forged, invalid},
		"access token, expired":     {token(func(c *accesstoken.Claims) { c.Expires = past }), expired},
		"token of another resource": {token(func(c *accesstoken.Claims) { c.Audience = issuer + "/mcp" }), other},
		"token of another user":     {token(func(c *accesstoken.Claims) { c.Subject = uuid.New() }), invalid},
		"token of unknown grant":    {token(func(c *accesstoken.Claims) { c.GrantID = uuid.New() }), invalid},
		"grant revoked":             {endedGrant("state = 'revoked', revoked_at = now()"), invalid},
		"grant ended":               {endedGrant("ends_at = now()"), expired},
	} {
		a := s.ask("", c.credential)
		a.wants(t, what, http.StatusUnauthorized, c.message)
		if !strings.HasPrefix(a.challenge, `Bearer realm="almoner", error="invalid_token", resource_metadata="`+issuer+
			metadataPath+`/v1", scope="`) {
			t.Errorf("%s: %s", what, a.challenge)
		}
	}
	if len(s.used) != 0 {
		t.Errorf("the use of a refused credential is recorded: %+v", s.used)
	}
	a := send(t, s.mcp.Guard("", s.served()), "/", "", "")
	a.wants(t, "none", http.StatusUnauthorized, "no credential")
	if a.challenge != `Bearer realm="almoner", resource_metadata="`+issuer+metadataPath+
		`/mcp", scope="programmes:read:programmes"` {
		t.Errorf("the challenge names an error, or not what a connector can use: %s", a.challenge)
	}
}

// Step 3: what the member and the credential may do in the workspace at this moment. Each row is a change of the
// standing of a credential whose member and workspace allow everything.
func TestAccess_RefusesByStandingInWorkspace(t *testing.T) {
	const (
		notForIt  = "This credential is not for the workspace in X-Tenant-Id."
		former    = "You are no longer a member of this workspace."
		llmOff    = "LLM integration is off in this workspace"
		userLacks = "You do not have the permission programmes:read:programmes in this workspace."
		patLacks  = "but this personal access token does not."
	)
	workspaceID, api, mcp := uuid.New(), New(Deps{Resource: API}), New(Deps{Resource: MCP})
	none := func(*standing.Standing) {}
	other := func(s *standing.Standing) { s.CredentialWorkspace = uuid.New() }
	left := func(s *standing.Standing) { s.Member = false }
	off := func(s *standing.Standing) { s.LLMIntegration = false }
	lowered := func(s *standing.Standing) { s.MemberPermissions = nil }
	less := func(s *standing.Standing) { s.CredentialPermissions = nil }
	for _, c := range []struct {
		gate    *Gate
		kind    string
		need    perm.Permission
		change  func(s *standing.Standing)
		refusal string
	}{
		{api, standing.PersonalAccessToken, perm.ProgrammesRead, none, ""},
		{api, standing.Connector, perm.ProgrammesRead, none, ""},
		{api, standing.PersonalAccessToken, "", other, notForIt},
		{api, standing.Connector, "", other, notForIt},
		{api, standing.PersonalAccessToken, "", left, former},
		{api, standing.Confidential, "", left, former},
		{api, standing.Connector, "", off, llmOff},
		{api, standing.Confidential, perm.ProgrammesRead, off, ""},
		{api, standing.PersonalAccessToken, perm.ProgrammesRead, off, ""},
		{mcp, standing.PersonalAccessToken, perm.ProgrammesRead, none, ""},
		{mcp, standing.Confidential, "", off, llmOff},
		{mcp, standing.PersonalAccessToken, "", off, llmOff},
		{api, standing.PersonalAccessToken, "", lowered, ""},
		{api, standing.PersonalAccessToken, perm.ProgrammesRead, lowered, userLacks},
		{api, standing.PersonalAccessToken, perm.ProgrammesRead, less, patLacks},
	} {
		all := perm.NewSet(perm.ProgrammesRead)
		s := standing.Standing{
			Kind:                  c.kind,
			State:                 standing.Active,
			CredentialWorkspace:   workspaceID,
			CredentialPermissions: all,
			Member:                true,
			MemberPermissions:     all,
			LLMIntegration:        true,
		}
		c.change(&s)
		held := presented{}
		if c.kind != standing.PersonalAccessToken {
			held.Claims = &accesstoken.Claims{Scope: all}
		}
		err := c.gate.access(t.Context(), held, s, c.need, c.gate.decide(held, s, workspaceID, c.need))
		if (err != nil) != (c.refusal != "") || err != nil &&
			(apierr.Of(err).Kind != apierr.Forbidden || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s on %s, need %q: %v, want %q", c.kind, c.gate.audience, c.need, err, c.refusal)
		}
	}
}

// A credential without a permission that its user holds is told what helps: another token, a new consent, or a change
// of the application or the policy.
func TestGuard_SaysHowCredentialGetsMissingPermission(t *testing.T) {
	s := newSite(t)
	s.Member(s.workspaceID, s.user, perm.ProgrammesRead, perm.ProgrammesWrite, perm.EngageReadForms)
	s.ask(perm.ProgrammesWrite, s.pat).wants(t, "token", http.StatusForbidden, "Create a token with this permission")
	const again, useless = "Connect again and allow it", "connecting again does not help"
	for what, c := range map[string]struct {
		kind      string
		askable   string
		message   string
		challenge string // its scope
	}{
		"nothing to ask for": {standing.Connector, "{engage:read:forms}", useless, ""},
		"the write alone": {standing.Connector, "{engage:read:forms,programmes:write:programmes}", again,
			"programmes:write:programmes engage:read:forms"},
		"the write with its read": {standing.Confidential,
			"{engage:read:forms,programmes:write:programmes,programmes:read:programmes}", again,
			"programmes:read:programmes programmes:write:programmes engage:read:forms"},
	} {
		token := s.grant(c.kind, perm.API, func(claims *accesstoken.Claims) {
			s.Exec("update account.oauth_clients set required_permissions = $2::text[] where id::text = $1",
				claims.ClientID, c.askable)
			claims.Scope = perm.NewSet(perm.EngageReadForms)
		}, perm.EngageReadForms, perm.ProgrammesRead)
		a := s.ask(perm.ProgrammesWrite, token)
		a.wants(t, what, http.StatusForbidden, c.message)
		want := ""
		if c.challenge != "" {
			want = `Bearer realm="almoner", error="insufficient_scope", resource_metadata="` + issuer + metadataPath +
				`/v1", scope="` + c.challenge + `"`
		}
		if a.challenge != want {
			t.Errorf("%s: %s, want %s", what, a.challenge, want)
		}
		s.ask(perm.ProgrammesRead, token).wants(t, what+", scope less than the grant", http.StatusForbidden, "")
	}
}

// Step 4: the module. The MCP endpoint reports it to the tool instead.
func TestRefuseModule_IsOfModulesAndOfTheAPIAlone(t *testing.T) {
	api, mcp := New(Deps{Resource: API}), New(Deps{Resource: MCP})
	for _, c := range []struct {
		enabled, provisioned bool
		code                 string
	}{
		{true, true, ""},
		{false, true, "MODULE_NOT_ENABLED"},
		{false, false, "MODULE_NOT_ENABLED"},
		{true, false, "TENANT_NOT_PROVISIONED"},
	} {
		all := perm.NewSet(perm.ProgrammesRead, perm.AccountReadMembers)
		s := standing.Standing{
			State:                 standing.Active,
			CredentialPermissions: all,
			Member:                true,
			MemberPermissions:     all,
			LLMIntegration:        true,
			ModuleEnabled:         c.enabled,
			ModuleProvisioned:     c.provisioned,
		}
		refuse := func(g *Gate, need perm.Permission) error {
			return g.refuseModule(g.decide(presented{}, s, uuid.Nil, need))
		}
		if err := refuse(api, perm.ProgrammesRead); (err != nil) != (c.code != "") ||
			err != nil && apierr.Of(err).StableCode() != c.code {
			t.Errorf("%+v: %v", c, err)
		}
		for _, err := range []error{
			refuse(api, ""), refuse(api, perm.AccountReadMembers), refuse(mcp, perm.ProgrammesRead),
		} {
			if err != nil {
				t.Errorf("%+v: a route without a module, or a tool, is refused: %v", c, err)
			}
		}
	}
}

// The workspace of the MCP endpoint is the credential's own. Without LLM integration, none is good there.
func TestGuard_MCPActsInWorkspaceOfCredential(t *testing.T) {
	s := newSite(t)
	token := s.grant(standing.Connector, perm.MCP, nil, perm.ProgrammesRead)
	s.Exec("update account.tenant_modules set enabled = false where tenant_id = $1", s.workspaceID)
	for what, credential := range map[string]string{"token": s.pat, "connector": token} {
		a := send(t, s.mcp.Guard(perm.ProgrammesRead, s.served()), "/", credential, uuid.NewString())
		a.wants(t, what, 204, "")
		if s.caller.Module == nil || s.caller.Module.Code != "MODULE_NOT_ENABLED" {
			t.Errorf("%s: the tool is told %v about the module", what, s.caller.Module)
		}
		if s.caller.WorkspaceID != s.workspaceID || s.caller.User != s.user ||
			s.caller.ClientID == "" == (what != "token") ||
			!s.caller.EndsAt.After(time.Now()) || s.caller.Credential != s.used[len(s.used)-1].CredentialID {
			t.Errorf("%s: %+v", what, s.caller)
		}
	}
	send(t, s.mcp.Guard("", s.served()), "/", s.pat[:len(s.pat)-1], "").wants(t, "invalid", 401, "not valid")
	s.Exec("delete from account.personal_access_tokens where user_id = $1", s.user)
	send(t, s.mcp.Guard("", s.served()), "/", s.pat, "").wants(t, "unknown", 401, "not valid")
	s.pat = s.PAT(s.workspaceID, s.user, perm.ProgrammesRead).Reveal()
	s.Exec("update account.tenant_features set enabled = false where tenant_id = $1", s.workspaceID)
	for _, credential := range []string{s.pat, token} {
		a := send(t, s.mcp.Guard("", s.served()), "/", credential, "")
		a.wants(t, "LLM integration off", http.StatusForbidden, "LLM integration is off")
	}
}

// A personal access token's first use ends the tokens that it replaces, before the answer.
func TestGuard_FirstUseEndsReplacedToken(t *testing.T) {
	s := newSite(t)
	next := s.PAT(s.workspaceID, s.user, perm.ProgrammesRead).Reveal()
	s.Exec(`update account.personal_access_tokens n set replaces_id = o.id from account.personal_access_tokens o
		where n.user_id = $1 and o.user_id = $1 and o.id < n.id`, s.user)
	s.ask("", s.pat).wants(t, "before", 204, "")
	s.ask("", next).wants(t, "the new token", 204, "")
	s.ask("", s.pat).wants(t, "after", 401, "not valid")
}

// A plan can need another permission than its route, and read the standing together with its data.
func TestGuard_FollowsPlan(t *testing.T) {
	s := newSite(t)
	plan, _ := s.served()(nil, uuid.Nil)
	asked := standing.Query{}
	plan.ReadStanding = func(ctx context.Context, q standing.Query) (standing.Standing, error) {
		asked = q
		return s.store.Standing(ctx, q)
	}
	guard := func(need perm.Permission) answer {
		h := s.api.Guard(need, func(*http.Request, uuid.UUID) (Plan, error) { return plan, nil })
		return send(t, h, "/", s.pat, s.workspaceID.String())
	}
	guard(perm.ProgrammesRead).wants(t, "of the route", 204, "")
	if asked.Module != "programmes" || asked.WorkspaceID != s.workspaceID {
		t.Errorf("%+v", asked)
	}
	plan.Need = perm.EngageWriteForms
	guard(perm.ProgrammesRead).wants(t, "of the plan", 403, "engage:write:forms")
	plan.Need, plan.ReadStanding = "", func(context.Context, standing.Query) (standing.Standing, error) {
		return standing.Standing{}, &apierr.Error{Kind: apierr.Unavailable, Cause: errors.New("no route to host")}
	}
	guard(perm.ProgrammesRead).wants(t, "no store", 503, "")
	if logged := s.log.Take(); !strings.Contains(logged, "no route to host") {
		t.Errorf("the cause is not logged: %s", logged)
	}
}

// A server error with a cause is logged, nothing else.
func TestRefuse_LogsCauseOfServerError(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		err    error
		logged bool
	}{
		{errors.New("a bug"), true},
		{&apierr.Error{Kind: apierr.Unavailable, Cause: errors.New("a bug")}, true},
		{apierr.New(apierr.NotProvisioned, "Not set up."), false},
		{&apierr.Error{Kind: apierr.RateLimited, Cause: errors.New("a bug")}, false},
		{rest.ErrReused, false},
	} {
		w := httptest.NewRecorder()
		s.api.Refuse(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
		if logged := s.log.Take(); strings.Contains(logged, "a bug") != c.logged || (logged != "") != c.logged {
			t.Errorf("%v: %q", c.err, logged)
		}
		if w.Code < 400 || strings.Contains(w.Body.String(), "a bug") {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
	}
}
