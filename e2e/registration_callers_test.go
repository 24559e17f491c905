package e2e

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 5, second table: who may call the tenant routes, and the errors for other callers. Each rule is
// tested on every route.

type clientRoute struct {
	method, path string
	body         any
	success      int
}

// clientRoutes returns the tenant routes for an existing application. The last one deletes it.
func clientRoutes(workspace demo.Workspace, client string) []clientRoute {
	all := harness.ClientsPath(workspace)
	return []clientRoute{
		{http.MethodPost, all, harness.ConfidentialBody(harness.ReadProgrammes), http.StatusCreated},
		{http.MethodGet, all, "", http.StatusOK},
		{http.MethodGet, all + "/" + client, "", http.StatusOK},
		{http.MethodPost, all + "/" + client + "/secret", "", http.StatusOK},
		{http.MethodDelete, all + "/" + client, "", http.StatusNoContent},
	}
}

func (r clientRoute) call(t *testing.T, api harness.API) harness.Answer {
	t.Helper()
	if r.body == "" {
		return api.Send(t, r.method, r.path, "", "")
	}
	return api.JSON(t, r.method, r.path, r.body)
}

func TestWorkspaceRoutes_NeedBearer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	for _, route := range clientRoutes(ws.Workspace, ws.Confidential(t, "", harness.ReadProgrammes).ClientID) {
		wantsGateway(t, route.call(t, p.API()), http.StatusUnauthorized, "Unauthorized")
		inWorkspace := route.call(t, p.API().With("X-Tenant-Id", ws.Workspace.ID))
		wantsGateway(t, inWorkspace, http.StatusUnauthorized, "Unauthorized")
		basic := route.call(t, p.API().With("Authorization", "Basic b3duZXI6cHc="))
		wantsGateway(t, basic, http.StatusUnauthorized, "Unauthorized")
	}
}

func TestWorkspaceRoutes_RejectInvalidBearer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	revoked := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	p.Database.RevokeToken(t, revoked)
	expired := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	p.Database.ExpireToken(t, expired)
	// The token of a connector for the MCP endpoint is valid, but for another resource.
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes).Connect(t, p.Person(t, ws.Owner))
	client := ws.Confidential(t, "", harness.ReadProgrammes).ClientID
	for name, token := range map[string]string{
		"expired":        expired,
		"revoked":        revoked,
		"malformed":      "nonsense",
		"unknown":        tamperedPAT(ws.Token),
		"other resource": mcp.AccessToken,
		"altered":        alterLast(mcp.AccessToken),
	} {
		t.Run(name, func(t *testing.T) {
			for _, route := range clientRoutes(ws.Workspace, client) {
				wantsGateway(t, route.call(t, p.As(token)), http.StatusForbidden, "Forbidden")
			}
		})
	}
}

func TestWorkspaceRoutes_NeedPermissionInURLWorkspace(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	client := ws.Confidential(t, "", harness.ReadProgrammes).ClientID
	reader := ws.Member(t, harness.ReadProgrammes)
	left := ws.Member(t, harness.Everything()...)
	leftToken := p.Database.Token(t, ws.Workspace, left, harness.Everything()...)
	p.Database.Leave(t, ws.Workspace, left)
	demoted := ws.Member(t, harness.Everything()...)
	demotedToken := p.Database.Token(t, ws.Workspace, demoted, harness.Everything()...)
	p.Database.Permit(t, ws.Workspace, demoted, harness.ReadProgrammes)
	both := p.Database.User(t)
	p.Database.Join(t, ws.Workspace, both, harness.Everything()...)
	p.Database.Join(t, other.Workspace, both, harness.Everything()...)
	for name, token := range map[string]string{
		"permission not in the token":   p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes),
		"permission not the user's":     p.Database.Token(t, ws.Workspace, reader, harness.Everything()...),
		"permission lost since":         demotedToken,
		"no longer a member":            leftToken,
		"not a member":                  other.Token,
		"a token for another workspace": p.Database.Token(t, other.Workspace, both, harness.Everything()...),
		"connector": ws.Connector(t, harness.ReadProgrammes).Connect(t, p.Person(t, ws.Owner)).
			AccessToken,
	} {
		t.Run(name, func(t *testing.T) {
			for _, route := range clientRoutes(ws.Workspace, client) {
				route.call(t, p.As(token)).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			}
		})
	}
	t.Run("unknown workspace", func(t *testing.T) {
		for _, route := range clientRoutes(demo.Workspace{ID: uuid.NewString()}, client) {
			route.call(t, p.As(ws.Token)).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		}
	})
	t.Run("the body is judged last", func(t *testing.T) {
		p.As(other.Token).JSON(t, http.MethodPost, ws.Clients(), `{`).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		wantsGateway(t, p.As("nonsense").JSON(t, http.MethodPost, ws.Clients(), `{`), http.StatusForbidden, "Forbidden")
	})
}

func TestWorkspaceRoutes_AcceptPATAndAccessToken(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app := ws.Confidential(t, "", harness.APIAccess, harness.ReadProgrammes)
	oauth := app.Connect(t, p.Person(t, ws.Owner)).AccessToken
	for name, token := range map[string]string{"personal access token": ws.Token, "access token": oauth} {
		t.Run(name, func(t *testing.T) {
			client := ws.Confidential(t, "", harness.ReadProgrammes).ClientID
			for _, route := range clientRoutes(ws.Workspace, client) {
				route.call(t, p.As(token)).Wants(t, route.success)
			}
		})
	}
}

// The registrar must hold each permission: both the token and the user.
func TestRegister_NeedsOwnPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	registrar := ws.Member(t, harness.APIAccess, harness.ReadProgrammes)
	body := harness.ConfidentialBody(harness.ReadProgrammes, harness.WriteProgrammes)
	for name, token := range map[string]string{
		"user lacks it":  p.Database.Token(t, ws.Workspace, registrar, harness.Everything()...),
		"token lacks it": p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess, harness.ReadProgrammes),
	} {
		t.Run(name, func(t *testing.T) {
			p.As(token).JSON(t, http.MethodPost, ws.Clients(), body).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			p.As(token).JSON(t, http.MethodPost, ws.Clients(), harness.ConfidentialBody(harness.ReadProgrammes)).
				Wants(t, http.StatusCreated)
		})
	}
	t.Run("the demo's registrar", func(t *testing.T) {
		main := p.Demo.Workspaces.Main
		p.As(p.Demo.Tokens.Registrar).JSON(t, http.MethodPost, harness.ClientsPath(main), body).
			WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		p.As(p.Demo.Tokens.Reader).Get(t, harness.ClientsPath(main)).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		p.As(p.Demo.Tokens.Registrar).Get(t, harness.ClientsPath(main)).Wants(t, http.StatusOK)
	})
}
