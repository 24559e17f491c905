package consent

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Connection is what became of one consent, with the names that its user knows and the user's standing in its
// workspace now.
type Connection struct {
	Grant       grant.Grant
	Application string
	Workspace   string
	Member      bool
	Held        perm.Set   // what the user holds there
	LLM         bool       // the workspace's LLM integration
	NarrowedAt  *time.Time // when the workspace's connector policy last took something from it
}

// A Pause is why a connection that lives can do nothing at this moment. It ends nothing: when the cause is gone, so is
// the pause.
type Pause string

// The pauses, in the order in which a token request is refused for them (contract, section 3).
const (
	NoPause     Pause = ""
	NoMember    Pause = "not_a_member"
	LLMOff      Pause = "llm_integration_off"
	NothingHeld Pause = "permissions_lost"
)

// Pause says why the connection can do nothing at this moment.
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

// Without are the permissions of the connection that its user does not hold at this moment: they have no effect.
func (c Connection) Without() perm.Set { return c.Grant.Permissions.Without(c.Held) }

// Live says whether the application can still act.
func (c Connection) Live(now time.Time) bool {
	return c.Grant.State == grant.Active && now.Before(c.Grant.Ends)
}
