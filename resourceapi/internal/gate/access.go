package gate

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
)

// access is step 3: may the credential do this in the workspace, at this moment? A workspace that does not exist and
// one that is merely not the caller's get the same answer.
func (g *Gate) access(
	ctx context.Context,
	held presented,
	s standing.Standing,
	workspaceID uuid.UUID,
	need Need,
) error {
	granted := held.granted(s)
	switch {
	case s.CredentialWorkspace != workspaceID:
		return apierr.New(
			apierr.Forbidden,
			"This credential is not for the workspace that X-Tenant-Id names. Use one that was made in that workspace.",
		)
	case !s.Member:
		return apierr.New(
			apierr.Forbidden,
			"You are not a member of this workspace any more. An administrator of the workspace can add you.",
		)
	case (g.assisting || s.Kind == standing.Connector) && !s.LLMIntegration:
		return apierr.New(
			apierr.Forbidden,
			"LLM integration is off in this workspace, so connectors have no access. An administrator of the "+
				"workspace can turn it on.",
		)
	case need.Permission == "":
		return nil
	case !s.MemberPermissions.Has(need.Permission):
		return apierr.New(
			apierr.Forbidden,
			"You do not hold "+string(
				need.Permission,
			)+" in this workspace. An administrator of the workspace can give it to you.",
		)
	case !granted.Has(need.Permission):
		return g.lacking(ctx, held, granted, need.Permission)
	}
	return nil
}

// lacking refuses a credential that lacks a permission which its user holds, and says what would help. Only where
// asking the user again would does it tell the client to (RFC 6750, section 3.1), so that no client asks in vain.
func (g *Gate) lacking(ctx context.Context, held presented, granted perm.Set, needed perm.Permission) error {
	if held.claims == nil {
		return apierr.New(
			apierr.Forbidden,
			"You hold "+string(
				needed,
			)+" in this workspace, but this personal access token was made without it. Make a new token with it in "+
				"Settings, Developers.",
		)
	}
	askable, err := g.standings.Askable(ctx, held.question.GrantID)
	if err != nil {
		return err
	}
	if !askable.Has(needed) {
		return apierr.New(
			apierr.Forbidden,
			"You hold "+string(
				needed,
			)+" in this workspace, but this application cannot be given it, so connecting again will not help. "+
				"Whoever manages the workspace's applications, in Settings, Developers, can register one that asks "+
				"for it, or change what connectors may be given.",
		)
	}
	return g.insufficient(granted, askable, needed)
}

// refuseModule is step 4, but for assistants: whoever calls a tool is told by its result.
func (g *Gate) refuseModule(s standing.Standing) error {
	if refusal := module(s); refusal != nil && !g.assisting {
		return refusal
	}
	return nil
}

// module says why a module does not work, or nil. Being provisioned is an administrator's work, so the 503 asks nobody
// to try again (spec 7.2).
func module(s standing.Standing) *apierr.Error {
	switch {
	case !s.ModuleEnabled:
		return &apierr.Error{Kind: apierr.Forbidden, Code: "MODULE_NOT_ENABLED",
			Message: "This module is not enabled in this workspace. An administrator of the workspace can enable it."}
	case !s.ModuleProvisioned:
		return apierr.New(
			apierr.NotProvisioned,
			"This module is enabled but not set up yet in this workspace. Trying again will not help: ask an "+
				"administrator.",
		)
	}
	return nil
}
