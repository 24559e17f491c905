package consent

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Connection is a grant as its user sees it, with names and the user's current membership in its workspace.
type Connection struct {
	Grant       grant.Grant
	Application string
	Workspace   string
	Member      bool
	Held        perm.Set   // permissions of the user in the workspace
	LLM         bool       // the workspace's LLM integration is on
	NarrowedAt  *time.Time // when the workspace's connector policy last removed something from it
}

// A Pause is why a live connection has no effect at this moment. It ends when its cause does.
type Pause string

// The pauses, in the order in which a token request is refused for them (contract, section 3).
const (
	NoPause     Pause = ""
	NoMember    Pause = "not_a_member"
	LLMOff      Pause = "llm_integration_off"
	NothingHeld Pause = "permissions_lost"
)

// Pause returns why the connection has no effect at this moment.
func (c Connection) Pause() Pause {
	switch {
	case !c.Member:
		return NoMember
	case c.Grant.Kind.Traits().NeedsLLM && !c.LLM:
		return LLMOff
	case len(c.Grant.Permissions.Intersect(c.Held)) == 0:
		return NothingHeld
	}
	return NoPause
}

// Without returns the permissions of the connection that have no effect, because its user does not hold them now.
func (c Connection) Without() perm.Set { return c.Grant.Permissions.Without(c.Held) }

// Live reports whether the application can still act.
func (c Connection) Live(now time.Time) bool {
	return c.Grant.State == grant.Active && now.Before(c.Grant.Ends)
}
