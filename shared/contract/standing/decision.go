package standing

import (
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Demand is what an operation demands of a credential.
type Demand struct {
	// Anywhere means that an active credential suffices: the operation acts in no workspace. Nothing else is demanded.
	Anywhere      bool
	WorkspaceID   uuid.UUID // in which the operation acts
	Permissions   perm.Set  // all of them; none if membership suffices
	ForAssistants bool      // LLM integration must be on, whatever the credential (contract, section 7a)
}

// A Refusal is why a credential may not do an operation.
type Refusal string

// The refusals, in the order of the checks (contract, section 6). A user without a permission does not learn the state
// of its module.
const (
	Allowed           Refusal = ""
	Ended             Refusal = "ended"              // the credential is not Active
	OtherWorkspace    Refusal = "other_workspace"    // the credential is not for this one
	NotMember         Refusal = "not_member"         // the user no longer belongs to the workspace
	LLMOff            Refusal = "llm_off"            // LLM integration is off
	MemberLacks       Refusal = "member_lacks"       // the user lacks a permission
	CredentialLacks   Refusal = "credential_lacks"   // the user has the permissions, but the credential lacks one
	ModuleDisabled    Refusal = "module_disabled"    // the module of a permission is not enabled
	ModuleUnavailable Refusal = "module_unavailable" // it is enabled, but not provisioned
)

// Decide returns why the credential may not do an operation now, or Allowed. It is the only place that decides this,
// for requests and for rehearsals. The standing is about the module of the demanded permissions. If an access token has
// fewer permissions than its grant, CredentialPermissions are those of the token.
func (s Standing) Decide(d Demand) Refusal {
	switch {
	case s.State != Active:
		return Ended
	case d.Anywhere:
		return Allowed
	case s.CredentialWorkspace != d.WorkspaceID:
		return OtherWorkspace
	case !s.Member:
		return NotMember
	case s.ConnectorsOff() || d.ForAssistants && !s.LLMIntegration:
		return LLMOff
	case !s.MemberPermissions.HasAll(d.Permissions):
		return MemberLacks
	case !s.CredentialPermissions.HasAll(d.Permissions):
		return CredentialLacks
	}
	for _, p := range d.Permissions {
		switch {
		case !p.OfModule():
		case !s.ModuleEnabled:
			return ModuleDisabled
		case !s.ModuleProvisioned:
			return ModuleUnavailable
		}
	}
	return Allowed
}
