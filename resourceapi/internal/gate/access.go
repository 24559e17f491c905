package gate

import (
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/standing"
)

// access is step 3: may the credential do this in the workspace, at this moment? A workspace that does not exist and
// one that is merely not the caller's get the same answer.
func (g *Gate) access(held presented, s standing.Standing, tenant uuid.UUID, need Need) error {
	granted := held.granted(s)
	switch {
	case s.CredentialTenant != tenant:
		return apierr.New(apierr.Forbidden, "This credential is not for the workspace that X-Tenant-Id names. Use one that was made in that workspace.")
	case !s.Member:
		return apierr.New(apierr.Forbidden, "You are not a member of this workspace any more. An administrator of the workspace can add you.")
	case s.Kind == standing.Connector && !s.LLMIntegration:
		return apierr.New(apierr.Forbidden, "LLM integration is off in this workspace, so connectors have no access. An administrator of the workspace can turn it on.")
	case !s.MemberPermissions.Has(need.Permission):
		return apierr.New(apierr.Forbidden, "You do not hold "+string(need.Permission)+" in this workspace. An administrator of the workspace can give it to you.")
	case !granted.Has(need.Permission):
		return g.insufficient(granted, need.Permission)
	}
	return nil
}

// module is step 4. Being provisioned is an administrator's work, so the 503 asks nobody to try again (spec 7.2).
func module(s standing.Standing) error {
	switch {
	case !s.ModuleEnabled:
		return &apierr.Error{Kind: apierr.Forbidden, Code: "MODULE_NOT_ENABLED",
			Message: "This module is not enabled in this workspace. An administrator of the workspace can enable it."}
	case !s.ModuleProvisioned:
		return apierr.New(apierr.NotProvisioned, "This module is enabled but not set up yet in this workspace. Trying again will not help: ask an administrator.")
	}
	return nil
}
