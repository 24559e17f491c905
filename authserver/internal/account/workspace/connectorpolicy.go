package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

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

// A ConnectorPolicy is what connectors may be given in a workspace, at most.
type ConnectorPolicy struct {
	Platforms   []Platform // none: no connector may be connected
	Permissions perm.Set
	Days        int // from consent to the end of the grant, 1 to MaxDays
}

// DefaultConnectorPolicy is the policy of a workspace that never chose one: everything that connectors may have at all.
func DefaultConnectorPolicy() ConnectorPolicy {
	return ConnectorPolicy{Platforms: Platforms(), Permissions: perm.ForConnectors(), Days: MaxDays}
}

// Allows says whether connectors of the platform may be connected.
func (p ConnectorPolicy) Allows(platform Platform) bool {
	return slices.Contains(p.Platforms, platform)
}

// Life is how long a grant lasts from consent.
func (p ConnectorPolicy) Life() time.Duration { return time.Duration(p.Days) * 24 * time.Hour }

// Equal says whether both allow the same.
func (p ConnectorPolicy) Equal(other ConnectorPolicy) bool {
	return slices.Equal(p.Platforms, other.Platforms) && slices.Equal(p.Permissions, other.Permissions) &&
		p.Days == other.Days
}

// Digest tells policies apart: those that are Equal have one.
func (p ConnectorPolicy) Digest() string {
	sum := sha256.Sum256([]byte(fmt.Sprint(p.Platforms, p.Permissions.Strings(), p.Days)))
	return hex.EncodeToString(sum[:])
}
