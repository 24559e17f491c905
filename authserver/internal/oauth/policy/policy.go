// Package policy limits what connectors may be given in a workspace.
//
//	P1 A policy limits and never grants: a grant is what its user consented to, held, and the policy allowed.
//	P2 Lowering a policy narrows existing grants in the same transaction; the next request is narrowed.
//	P3 Raising a policy widens no grant. The user must consent again.
//	P4 It applies only to connectors. A workspace without a policy has the default.
//
// Callers: consent (what a page offers), store/postgres (P2, and what an approval may write), endpoint/settings and
// admin (changes).
package policy

import (
	"errors"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// ErrChanged reports that the policy changed since it was read.
var ErrChanged = errors.New("the connector policy has changed since it was read")

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

// An Effect counts the grants that a policy would change, or has changed.
type Effect struct {
	End    int // revoked, because their platform, all their permissions or their age is not allowed
	Lose   int // lose some of their permissions but stay active
	Sooner int // end sooner but stay active
	// More reports that the workspace has more active connections than are counted (10,000): the numbers are those of
	// the latest, and others may be changed too.
	More bool
}

// None reports whether no grant is changed.
func (e Effect) None() bool { return e == Effect{} }

// A Change is the result of changing a policy.
type Change struct {
	Before, After workspace.ConnectorPolicy
	Effect        Effect
	EndedGrants   []grant.Grant // to be revoked in Redis
}
