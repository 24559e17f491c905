// Package policy answers: what may connectors be given in a workspace, at most?
//
//	P1 A policy limits and never gives: a grant is what its user consented to, held, and the policy allowed.
//	P2 Lowering a policy narrows the grants that exist, in the same transaction: the next request meets them narrowed.
//	P3 Raising a policy widens no grant. Whoever wants more consents again.
//	P4 It concerns connectors alone. A workspace that never chose one has Default.
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

// ErrChanged says that a policy is no longer the one that somebody saw who wants another.
var ErrChanged = errors.New("the connector policy is another one by now")

// Narrow is a connector's grant, consented to at a moment, as the policy lets it be at most. false: nothing of it is
// left.
func Narrow(
	p workspace.ConnectorPolicy,
	g grant.Grant,
	platform workspace.Platform,
	consented time.Time,
) (grant.Grant, bool) {
	g.Permissions = g.Permissions.Intersect(p.Permissions)
	if latest := consented.Add(p.Life()); g.Ends.After(latest) {
		g.Ends = latest
	}
	return g, p.Allows(platform) && len(g.Permissions) > 0
}

// An Effect is how many grants a policy would touch, or has touched.
type Effect struct {
	End    int // that would be revoked: their platform, all their permissions, or their age is not allowed
	Lose   int // that would lose some of their permissions, and live on
	Sooner int // that would end sooner, and live on
}

// None says that no grant is touched.
func (e Effect) None() bool { return e == Effect{} }

// A Change is what became of a policy and of the grants under it.
type Change struct {
	Before, After workspace.ConnectorPolicy
	Effect        Effect
	EndedGrants   []grant.Grant // for Redis
}
