package consent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A policy limits what connectors may be given in a workspace:
//
//	P1 A policy limits and never grants: a grant is what its user consented to, held, and the policy allowed.
//	P2 Lowering a policy narrows existing grants in the same transaction; the next request is narrowed.
//	P3 Raising a policy widens no grant. The user must consent again.
//	P4 It applies only to connectors. A workspace without a policy has the default.
//
// Besides this package, store/postgres (P2, and what an approval may write), endpoint/settings and admin (changes) use
// it.

// ErrPolicyChanged reports that the policy changed since it was read.
var ErrPolicyChanged = errors.New("the connector policy has changed since it was read")

// Narrow returns a connector's grant as the policy limits it. consented is when the user consented. It returns false if
// nothing of the grant is left.
func Narrow(
	p workspace.ConnectorPolicy, g grant.Grant, platform workspace.Platform, consented time.Time,
) (grant.Grant, bool) {
	g.Permissions = g.Permissions.Intersect(p.Permissions)
	if latest := consented.Add(p.Life()); g.Ends.After(latest) {
		g.Ends = latest
	}
	return g, p.Allows(platform) && len(g.Permissions) > 0
}

// A PolicyEffect counts the grants that a policy would change, or has changed.
type PolicyEffect struct {
	End    int // revoked, because their platform, all their permissions or their age is not allowed
	Lose   int // lose some of their permissions but stay active
	Sooner int // end sooner but stay active
	// More reports that the workspace has more active connections than are counted (10,000): the numbers are those of
	// the latest, and others may be changed too.
	More bool
}

// None reports whether no grant is changed.
func (p PolicyEffect) None() bool { return p == PolicyEffect{} }

// A PolicyChange is the result of changing a policy.
type PolicyChange struct {
	Before, After workspace.ConnectorPolicy
	Effect        PolicyEffect
	EndedGrants   []grant.Grant // to be revoked in Redis
}

// A PolicyRequest is a policy as the user entered it.
type PolicyRequest struct {
	Platforms   []string
	Permissions []string
	Days        int
}

// A PolicyRefusal says which field of a request is invalid, and why.
type PolicyRefusal struct{ Field, Message string }

func (p *PolicyRefusal) Error() string { return p.Message }

// The fields that a PolicyRefusal names.
const (
	FieldPlatforms   = "platforms"
	FieldPermissions = "permissions"
	FieldDays        = "days"
)

// Accept returns the policy, or a *PolicyRefusal.
func (p PolicyRequest) Accept() (workspace.ConnectorPolicy, error) {
	refuse := func(field, message string) (workspace.ConnectorPolicy, error) {
		return workspace.ConnectorPolicy{}, &PolicyRefusal{field, message}
	}
	var out workspace.ConnectorPolicy
	for _, platform := range workspace.Platforms() {
		if slices.Contains(p.Platforms, string(platform)) {
			out.Platforms = append(out.Platforms, platform)
		}
	}
	for _, text := range p.Platforms {
		if !slices.Contains(workspace.Platforms(), workspace.Platform(text)) {
			return refuse(FieldPlatforms, "A platform must be claude, chatgpt or other.")
		}
	}
	out.Permissions = perm.FromStrings(p.Permissions)
	if len(out.Permissions) == 0 {
		return refuse(FieldPermissions, "Choose at least one permission. To block all connectors, choose no platform.")
	}
	for _, one := range out.Permissions {
		entry, known := perm.Describe(one)
		switch {
		case !known || !entry.Connector:
			return refuse(FieldPermissions, "Connectors cannot have this permission.")
		case entry.Needs != "" && !out.Permissions.Has(entry.Needs):
			needed, _ := perm.Describe(entry.Needs)
			return refuse(FieldPermissions,
				fmt.Sprintf("“%s” requires “%s”. Choose both or neither.", entry.Title, needed.Title))
		}
	}
	if p.Days < 1 || p.Days > workspace.MaxDays {
		return refuse(FieldDays, fmt.Sprintf("Enter a number of days from 1 to %d.", workspace.MaxDays))
	}
	out.Days = p.Days
	return out, nil
}
