package consent

import (
	"errors"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// ErrLLMOff reports that connectors may not act in the workspace (spec 4.4).
var ErrLLMOff = errors.New("LLM integration is off in the workspace")

// A MissingPermissionsError reports that the user does not hold what the client needs.
type MissingPermissionsError struct{ Missing perm.Set }

func (m *MissingPermissionsError) Error() string { return "the user lacks: " + m.Missing.Scope() }

// AddRequiredReads adds to a connector's requested permissions the reads that its writes depend on, if the client may
// have them and the user holds both. Platforms warn their users of a write without its read.
func AddRequiredReads(c client.Client, requested perm.Set, in workspace.Membership) perm.Set {
	if c.Kind.Traits().AllOrNothing {
		return requested
	}
	return requested.Union(requested.Intersect(in.Permissions).Needs().Intersect(c.Required).Intersect(in.Permissions))
}

// Evaluate splits the requested permissions into those that the user can grant in this workspace and those that are
// left out, because the user does not hold them (contract, section 4) or the read that goes with them. A kind that is
// all or nothing leaves nothing out. It returns ErrLLMOff or a *MissingPermissionsError.
func Evaluate(c client.Client, requested perm.Set, in workspace.Membership) (granted, leftOut perm.Set, err error) {
	traits := c.Kind.Traits()
	if !c.Kind.AllowedBy(in.Workspace.LLMIntegration) {
		return nil, nil, ErrLLMOff
	}
	granted, leftOut = requested.Intersect(in.Permissions), requested.Without(in.Permissions)
	if !traits.AllOrNothing {
		for _, p := range granted {
			if reads := perm.NewSet(p).Needs().Intersect(c.Required).Without(in.Permissions); len(reads) > 0 {
				granted, leftOut = granted.Without(perm.NewSet(p)), leftOut.Union(reads).Union(perm.NewSet(p))
			}
		}
	}
	if len(granted) == 0 || (traits.AllOrNothing && len(leftOut) > 0) {
		return nil, nil, &MissingPermissionsError{Missing: leftOut}
	}
	return granted, leftOut, nil
}

// ReadOnly returns the read permissions of a set: the smaller of the two presets on a connector's consent page. It is
// nil if it would equal the set or be empty.
func ReadOnly(kind client.Kind, set perm.Set) perm.Set {
	if kind.Traits().AllOrNothing {
		return nil
	}
	var out perm.Set
	for _, p := range set {
		if p.Reads() {
			out = append(out, p)
		}
	}
	if len(out) == len(set) {
		return nil
	}
	return out
}

// SelectableWorkspaces splits a user's workspaces into those that a client of this kind may be given and those that are
// closed to it.
func SelectableWorkspaces(kind client.Kind, memberships []workspace.Membership) (open, closed []workspace.Membership) {
	for _, m := range memberships {
		if !kind.AllowedBy(m.Workspace.LLMIntegration) {
			closed = append(closed, m)
			continue
		}
		open = append(open, m)
	}
	return open, closed
}

// Refusals by a workspace's connector policy.
var (
	ErrPlatformNotAllowed = errors.New("the workspace's connector policy does not allow this platform")
	ErrNothingAllowed     = errors.New("the workspace's connector policy allows none of the permissions")
)

// ApplyPolicy splits what a user could grant to a client into what the workspace's connector policy allows and what it
// withholds. It returns ErrPlatformNotAllowed or ErrNothingAllowed. The policy applies only to connectors.
func ApplyPolicy(c client.Client, could perm.Set, in workspace.Workspace) (granted, withheld perm.Set, err error) {
	if c.Kind != client.Connector {
		return could, nil, nil
	}
	granted, withheld = could.Intersect(in.Connectors.Permissions), could.Without(in.Connectors.Permissions)
	switch {
	case !in.Connectors.Allows(workspace.PlatformOf(c.Platform)):
		return nil, nil, ErrPlatformNotAllowed
	case len(granted) == 0:
		return nil, withheld, ErrNothingAllowed
	}
	return granted, withheld, nil
}

// Life returns how long a client's grant lasts in a workspace from consent.
func Life(c client.Client, in workspace.Workspace) time.Duration {
	life := c.Kind.Traits().GrantLife
	if c.Kind == client.Connector {
		life = min(life, in.Connectors.Life())
	}
	return life
}
