// Package policy answers: what may connectors be given in a workspace, at most?
//
//	P1 A policy limits and never gives: a grant is what its user consented to, held, and the policy allowed.
//	P2 Lowering a policy narrows the grants that exist, in the same transaction: the next request meets them narrowed.
//	P3 Raising a policy widens no grant. Whoever wants more consents again.
//	P4 It concerns connectors alone. A workspace that never chose one has Default.
//
// Callers: consent (what a page offers), store/postgres (P2, and what an approval may write), endpoint/settings and admin (changes).
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Platform is whose connector it is.
type Platform string

// The platforms. Other is every client that belongs to neither of the two.
const (
	Claude  Platform = "claude"
	ChatGPT Platform = "chatgpt"
	Other   Platform = "other"
)

// Platforms are all there are, in the order in which pages show them.
func Platforms() []Platform { return []Platform{Claude, ChatGPT, Other} }

// PlatformOf is the platform of a client by its connectorPlatform, which may be "".
func PlatformOf(connectorPlatform string) Platform {
	if p := Platform(connectorPlatform); p == Claude || p == ChatGPT {
		return p
	}
	return Other
}

// Name is what people call it.
func (p Platform) Name() string {
	switch p {
	case Claude:
		return "Claude"
	case ChatGPT:
		return "ChatGPT"
	}
	return "Other applications"
}

// MaxDays is the life of a connector's grant where no policy shortens it (spec 5.2).
const MaxDays = 30

// A Policy is what connectors may be given in a workspace, at most.
type Policy struct {
	Platforms   []Platform // none: no connector may be connected
	Permissions perm.Set
	Days        int // from consent to the end of the grant, 1 to MaxDays
}

// Default is the policy of a workspace that never chose one: everything that connectors may have at all.
func Default() Policy {
	return Policy{Platforms: Platforms(), Permissions: perm.ForConnectors(), Days: MaxDays}
}

// Allows says whether connectors of the platform may be connected.
func (p Policy) Allows(platform Platform) bool { return slices.Contains(p.Platforms, platform) }

// Life is how long a grant lasts from consent.
func (p Policy) Life() time.Duration { return time.Duration(p.Days) * 24 * time.Hour }

// Equal says whether both allow the same.
func (p Policy) Equal(other Policy) bool {
	return slices.Equal(p.Platforms, other.Platforms) && slices.Equal(p.Permissions, other.Permissions) && p.Days == other.Days
}

// ErrChanged says that a policy is no longer the one that somebody saw who wants another.
var ErrChanged = errors.New("the connector policy is another one by now")

// Digest tells policies apart: those that are Equal have one.
func (p Policy) Digest() string {
	sum := sha256.Sum256([]byte(fmt.Sprint(p.Platforms, p.Permissions.Strings(), p.Days)))
	return hex.EncodeToString(sum[:])
}

// Narrow is a connector's grant, consented to at a moment, as the policy lets it be at most. false: nothing of it is left.
func (p Policy) Narrow(g grant.Grant, platform Platform, consented time.Time) (grant.Grant, bool) {
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
	Before, After Policy
	Effect        Effect
	Ended         []grant.Grant // for the Register
}
