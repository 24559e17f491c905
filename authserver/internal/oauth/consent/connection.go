package consent

import (
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Connection is a grant as its user sees it, with names and the user's current membership in its workspace.
type Connection struct {
	Grant       grant.Grant
	Application string
	Workspace   string
	Member      bool
	Held        perm.Set   // permissions of the user in the workspace
	LLMEnabled  bool       // the workspace's LLM integration is on
	NarrowedAt  *time.Time // when the workspace's connector policy last removed something from it
	Home        string     // website of the application, or ""
	Person      string     // name of the user
	Email       string     // of the user
}

// A ConnectionPage selects connections of a workspace.
type ConnectionPage struct {
	Only   *uuid.UUID // the grant with this id, or nil for all
	Before *uuid.UUID // the grants that were approved before this one, or nil for all
	Words  string     // part of the application's name or the person's name or address, or "" for all
	Limit  int
}

// HomeOf returns the website of an application: the origin of its metadata document, or of its first redirect URI that
// is on the web. It returns "" for an application on the user's computer.
func HomeOf(document string, redirects []string) string {
	for _, text := range append([]string{document}, redirects...) {
		if address, err := url.Parse(text); err == nil && address.Scheme == "https" && address.Host != "" {
			return "https://" + address.Host
		}
	}
	return ""
}

// Blocked returns why the connection has no effect at this moment. It does not check the grant's end: see Live.
func (c Connection) Blocked() grant.Block {
	return grant.Snapshot{Grant: &c.Grant, Member: c.Member, Held: c.Held, LLMEnabled: c.LLMEnabled}.Blocked()
}

// Without returns the permissions of the connection that have no effect, because its user does not hold them now.
func (c Connection) Without() perm.Set { return c.Grant.Permissions.Without(c.Held) }

// Live reports whether the application can still act.
func (c Connection) Live(now time.Time) bool {
	return c.Grant.State == grant.Active && now.Before(c.Grant.Ends)
}
