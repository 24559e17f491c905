// Package workspace defines workspaces, their users and memberships, and their connector policies.
package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Workspace is a workspace of an organisation (spec 1).
type Workspace struct {
	ID             uuid.UUID
	Name           string
	Organisation   string
	LLMIntegration bool // connectors may act here (spec 4.4)
	SecondFactor   bool // its members must sign in with a second factor
	Connectors     ConnectorPolicy
}

// A User is a person. Only memberships give a user permissions.
type User struct {
	ID         uuid.UUID
	Email      string // lower case
	Name       string
	DisabledAt *time.Time
	Proven     bool // it was proven that the address is the user's (useraccount.Proof); set by reads of users
}

// A Membership is a user's membership of one workspace. Without one, the user has no access (spec 5.3).
type Membership struct {
	Workspace   Workspace
	Permissions perm.Set
}

// ModuleState says whether a module can be used in a workspace. The operator of the server changes it.
type ModuleState struct {
	Enabled     bool
	Provisioned bool
}

// MaxEmail is the maximum length of an e-mail address (RFC 5321, section 4.5.3.1.3).
const MaxEmail = 254

// PlausibleEmail reports whether a text can be an e-mail address. Other text is refused before a store is queried.
func PlausibleEmail(email string) bool {
	return len(email) <= MaxEmail && utf8.ValidString(email) &&
		!strings.ContainsFunc(email, func(r rune) bool { return r <= ' ' || r == 0x7f }) &&
		strings.Contains(strings.Trim(email, "@"), "@")
}

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
	return "Other assistants"
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
func (c ConnectorPolicy) Allows(platform Platform) bool {
	return slices.Contains(c.Platforms, platform)
}

// Life returns how long a grant lasts from consent.
func (c ConnectorPolicy) Life() time.Duration { return time.Duration(c.Days) * 24 * time.Hour }

// Equal reports whether both policies allow the same.
func (c ConnectorPolicy) Equal(other ConnectorPolicy) bool {
	return slices.Equal(c.Platforms, other.Platforms) && slices.Equal(c.Permissions, other.Permissions) &&
		c.Days == other.Days
}

// Includes reports whether the policy allows everything that another allows.
func (c ConnectorPolicy) Includes(other ConnectorPolicy) bool {
	return c.Permissions.HasAll(other.Permissions) && c.Days >= other.Days &&
		!slices.ContainsFunc(other.Platforms, func(one Platform) bool { return !c.Allows(one) })
}

// Digest identifies a policy: equal policies have the same digest.
func (c ConnectorPolicy) Digest() string {
	sum := sha256.Sum256([]byte(fmt.Sprint(c.Platforms, c.Permissions.Strings(), c.Days)))
	return hex.EncodeToString(sum[:])
}
