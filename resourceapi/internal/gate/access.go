package gate

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
)

// access is step 3: it checks whether the credential may do this in the workspace now. A workspace that does not
// exist and one that the caller does not belong to get the same answer.
func (g *Gate) access(
	ctx context.Context, held presented, s standing.Standing, workspaceID uuid.UUID, need perm.Permission,
) error {
	granted := held.granted(s)
	switch {
	case s.CredentialWorkspace != workspaceID:
		return apierr.New(apierr.Forbidden,
			"This credential is not for the workspace in X-Tenant-Id. Use a credential that was created in that "+
				"workspace.")
	case !s.Member:
		return apierr.New(apierr.Forbidden,
			"You are no longer a member of this workspace. Ask an administrator of the workspace to add you.")
	case s.ConnectorsOff() || (g.assisting && !s.LLMIntegration):
		return apierr.New(apierr.Forbidden,
			"LLM integration is off in this workspace, so connectors have no access. An administrator of the "+
				"workspace can turn it on.")
	case need == "":
		return nil
	case !s.MemberPermissions.Has(need):
		return apierr.New(apierr.Forbidden,
			"You do not have the permission "+string(need)+" in this workspace. Ask an administrator of the workspace "+
				"to grant it.")
	case !granted.Has(need):
		return g.refuseMissing(ctx, held, granted, need)
	}
	return nil
}

// refuseMissing refuses a credential without a permission that its user holds, and says what would help. It sends the
// insufficient_scope challenge (RFC 6750, section 3.1) only if a new consent can grant the permission.
func (g *Gate) refuseMissing(ctx context.Context, held presented, granted perm.Set, needed perm.Permission) error {
	if held.claims == nil {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this personal access token does not. "+
				"Create a token with this permission in Settings, Developers.")
	}
	askable, err := g.standings.Askable(ctx, held.question.GrantID, held.question.GrantIn)
	if err != nil {
		return err
	}
	if !askable.Has(needed) {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this application cannot get it, so "+
				"connecting again does not help. An administrator of the workspace can register an application that "+
				"requires it, in Settings, Developers, or change the connector policy, in Settings, Connectors.")
	}
	return g.insufficient(granted, askable, needed)
}

// refuseModule is step 4. It never refuses on the MCP endpoint, where the tool's result reports the module, nor a route
// that needs no permission of a module.
func (g *Gate) refuseModule(s standing.Standing, need perm.Permission) error {
	if refusal := module(s); refusal != nil && !g.assisting && need.OfModule() {
		return refusal
	}
	return nil
}

// module returns why a module cannot be used, or nil. Only the operator of the server can enable and provision a module
// (authserver admin modules set), so the 503 has no Retry-After (spec 7.2).
func module(s standing.Standing) *apierr.Error {
	switch {
	case !s.ModuleEnabled:
		return &apierr.Error{Kind: apierr.Forbidden, Code: "MODULE_NOT_ENABLED",
			Message: "This module is not enabled in this workspace. Ask the administrator who operates this " +
				"server to enable it: members of the workspace cannot."}
	case !s.ModuleProvisioned:
		return apierr.New(apierr.NotProvisioned,
			"This module is enabled but not set up in this workspace yet. Trying again does not help. Ask the "+
				"administrator who operates this server to set it up.")
	}
	return nil
}
