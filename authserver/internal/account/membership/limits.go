package membership

import (
	"time"

	"github.com/almonerhq/almoner/shared/web"
)

// LimitWindow is the period in which sent invitations are counted. A message counts even if its invitation was
// withdrawn.
const LimitWindow = 24 * time.Hour

// A Limit is the maximum number of invitations sent within LimitWindow, or of users who sent them. An invitation that
// is sent again counts again. A refused request does not count.
type Limit struct {
	Name string // in the header RateLimit
	Most int
	Text string // message for the user
}

// The limits (M5).
var (
	PerInviter = Limit{
		Name: "invitations-per-inviter",
		Most: 50,
		Text: "You have sent 50 invitations within 24 hours, which is the maximum.",
	}
	PerWorkspace = Limit{
		Name: "invitations-per-workspace",
		Most: 200,
		Text: "The workspace has sent 200 invitations within 24 hours, which is the maximum.",
	}
	PerAddressOfInviter = Limit{
		Name: "invitations-per-address",
		Most: 5,
		Text: "You have sent 5 invitations to this address within 24 hours, which is the maximum.",
	}
	// PerAddressInWorkspace and PerAddress count users, so that one user cannot exhaust the limit of the others.
	PerAddressInWorkspace = Limit{
		Name: "inviters-per-address",
		Most: 5,
		Text: "5 people of the workspace have invited this address within 24 hours, which is the maximum.",
	}
	// PerAddress counts the users of all workspaces. It never applies to the first message of a workspace to an
	// address, so that other workspaces cannot prevent the invitation of a person.
	PerAddress = Limit{
		Name: "inviters-per-address-in-all-workspaces",
		Most: 20,
		Text: "Too many people have invited this address within 24 hours.",
	}
)

// A LimitError reports that a limit was reached. Nothing was sent.
type LimitError struct {
	Limit
	Wait time.Duration // until another invitation can be sent
}

func (e *LimitError) Error() string { return "limit reached: " + e.Name }

// RateLimit describes the limit to the caller of the API.
func (e *LimitError) RateLimit() web.RateLimit {
	return web.RateLimit{Name: e.Name, Quota: e.Most, Window: LimitWindow, Reset: e.Wait}
}
