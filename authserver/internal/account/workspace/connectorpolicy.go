package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Platform is the platform that a connector belongs to.
type Platform string

// The platforms. Other covers every client of neither of the first two.
const (
	Claude  Platform = "claude"
	ChatGPT Platform = "chatgpt"
	Other   Platform = "other"
)

// Platforms returns all platforms, in the order in which pages show them.
func Platforms() []Platform { return []Platform{Claude, ChatGPT, Other} }

// PlatformOf returns the platform of a client with this connectorPlatform, which may be "".
func PlatformOf(connectorPlatform string) Platform {
	if p := Platform(connectorPlatform); p == Claude || p == ChatGPT {
		return p
	}
	return Other
}

// Name returns the display name.
func (p Platform) Name() string {
	switch p {
	case Claude:
		return "Claude"
	case ChatGPT:
		return "ChatGPT"
	}
	return "Other applications"
}

// MaxDays is the life of a connector's grant if no policy shortens it (spec 5.2).
const MaxDays = 30

// A ConnectorPolicy limits what connectors may be given in a workspace.
type ConnectorPolicy struct {
	Platforms   []Platform // if empty, no connector may be connected
	Permissions perm.Set
	Days        int // from consent to the end of the grant, 1 to MaxDays
}

// DefaultConnectorPolicy returns the policy of a workspace that never chose one: everything that connectors may have.
func DefaultConnectorPolicy() ConnectorPolicy {
	return ConnectorPolicy{Platforms: Platforms(), Permissions: perm.ForConnectors(), Days: MaxDays}
}

// Allows reports whether connectors of the platform may be connected.
func (p ConnectorPolicy) Allows(platform Platform) bool {
	return slices.Contains(p.Platforms, platform)
}

// Life returns how long a grant lasts from consent.
func (p ConnectorPolicy) Life() time.Duration { return time.Duration(p.Days) * 24 * time.Hour }

// Equal reports whether both policies allow the same.
func (p ConnectorPolicy) Equal(other ConnectorPolicy) bool {
	return slices.Equal(p.Platforms, other.Platforms) && slices.Equal(p.Permissions, other.Permissions) &&
		p.Days == other.Days
}

// Includes reports whether the policy allows everything that another allows.
func (p ConnectorPolicy) Includes(other ConnectorPolicy) bool {
	return p.Permissions.HasAll(other.Permissions) && p.Days >= other.Days &&
		!slices.ContainsFunc(other.Platforms, func(one Platform) bool { return !p.Allows(one) })
}

// Digest identifies a policy: equal policies have the same digest.
func (p ConnectorPolicy) Digest() string {
	sum := sha256.Sum256([]byte(fmt.Sprint(p.Platforms, p.Permissions.Strings(), p.Days)))
	return hex.EncodeToString(sum[:])
}
