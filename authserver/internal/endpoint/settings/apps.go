package settings

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An appsView is Settings → Connected apps, with every grant of the user.
type appsView struct {
	page
	Address string // of the MCP endpoint
	Live    []connectedApp
	List    listPage // of the approvals
	Ended   []approval
	Former  listPage // of the ended approvals
}

func (*appsView) Template() string { return "apps" }

// A connectedApp has the approvals of the user for one client.
type connectedApp struct {
	ID, Name  string
	Approvals []approval // on this page
	All       int        // approvals on all pages
}

// An approval is one grant.
type approval struct {
	ID                     string
	Application, Workspace string
	Permissions            perm.Set
	Since                  time.Time
	LastUsed               *time.Time
	Ends                   time.Time
	Narrowed               *time.Time // when the connector policy last narrowed it
	Ended                  string     // how it ended, or "" while it is active
	EndedAt                time.Time
	Paused                 string   // why the connection has no access now, or ""
	Without                perm.Set // permissions that the user lost, unless the connection is paused
	Ask                    *ui.Ask  // for what it lacks; nil if an administrator cannot give it
	Alarming               bool     // it ended because a used code or token was presented
	Explained              bool     // Ended says whether that looks like theft
	Home                   string   // where the user can connect the application again, or ""
}

// endedShown is how many ended approvals a page shows, and mostAsks limits its buttons that ask an administrator.
const (
	endedShown = 10
	mostAsks   = 10
)

func (s *Settings) showApps(r *request) error {
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &appsView{Address: s.BaseURL + "/mcp"}
	var live []consent.Connection
	for _, c := range connections {
		if c.Live(s.Now()) {
			live = append(live, c)
		} else {
			view.Ended = append(view.Ended, approvalView(c, endedGrant(c)))
		}
	}
	view.Ended, view.Former = listing[approval]{
		Of:        "ended approvals",
		Path:      r.section.Path(),
		Parameter: "ended",
		Size:      endedShown,
	}.Select(r.query(), view.Ended)
	if err := s.addLive(r, view, live); err != nil {
		return err
	}
	return r.show(view)
}

// addLive adds the page of live connections that the URL selects.
func (s *Settings) addLive(r *request, view *appsView, live []consent.Connection) error {
	live, count := byApplication(live)
	live, view.List = listing[consent.Connection]{Of: "approvals", Path: r.section.Path()}.Select(r.query(), live)
	for i, c := range live {
		one := approvalView(c, "")
		if one.Paused = whyPaused(c); one.Paused == "" {
			one.Without = c.Without()
		}
		var err error
		if one.Ask, err = r.askForApp(c, i); err != nil {
			return err
		}
		id, last := c.Grant.ClientID, len(view.Live)-1
		if last >= 0 && view.Live[last].ID == id.String() {
			view.Live[last].Approvals = append(view.Live[last].Approvals, one)
			continue
		}
		view.Live = append(view.Live, connectedApp{id.String(), c.Application, []approval{one}, count[id]})
	}
	return nil
}

// byApplication groups the connections by application, and returns the number of connections of each application. The
// application with the latest approval comes first.
func byApplication(connections []consent.Connection) ([]consent.Connection, map[uuid.UUID]int) {
	first, count := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for i, c := range connections {
		if _, known := first[c.Grant.ClientID]; !known {
			first[c.Grant.ClientID] = i
		}
		count[c.Grant.ClientID]++
	}
	slices.SortStableFunc(connections, func(a, b consent.Connection) int {
		return first[a.Grant.ClientID] - first[b.Grant.ClientID]
	})
	return connections, count
}

// askForApp returns the button for what the nth connection lacks, or nil if it lacks nothing that an administrator can
// give.
func (r *request) askForApp(c consent.Connection, n int) (*ui.Ask, error) {
	missing, off := c.Grant.Permissions.Without(c.Held), c.Blocked() == grant.LLMOff
	if n >= mostAsks || !c.Member || (len(missing) == 0 && !off) {
		return nil, nil
	}
	if off {
		missing = nil
	}
	member := workspace.Membership{
		Workspace:   workspace.Workspace{ID: c.Grant.WorkspaceID, Name: c.Workspace},
		Permissions: c.Held,
	}
	ask, err := r.offer(member, missing, c.Application, r.section.Path())
	return &ask, err
}

func approvalView(c consent.Connection, ended string) approval {
	out := approval{
		ID:          c.Grant.ID.String(),
		Application: c.Application,
		Workspace:   c.Workspace,
		Permissions: c.Grant.Permissions,
		Since:       c.Grant.Created,
		LastUsed:    c.Grant.LastUsed,
		Ends:        c.Grant.Ends,
		Ended:       ended,
		EndedAt:     c.Grant.Ends,
		Narrowed:    c.NarrowedAt,
		Alarming:    looksStolen(c.Grant.Reason),
		Explained:   c.Grant.Ending != nil,
		Home:        c.Home,
	}
	if c.Grant.State == grant.Revoked && c.Grant.RevokedAt != nil {
		out.EndedAt = *c.Grant.RevokedAt
	}
	return out
}

// looksStolen reports whether a grant ended because a used code or token was presented.
func looksStolen(reason grant.Reason) bool {
	return reason == grant.Replayed || reason == grant.CodeReused || reason == grant.CodeGuessed
}

// whyPaused returns why a connection cannot do anything now, or "".
func whyPaused(c consent.Connection) string {
	switch c.Blocked() {
	case grant.NotMember:
		return "You are no longer a member of " + c.Workspace + ", so " + c.Application + " has no access to it."
	case grant.LLMOff:
		return "The LLM integration of " + c.Workspace + " is switched off. " + c.Application +
			" has no access until an administrator switches it on."
	case grant.PermissionsLost:
		return "You no longer have any of these permissions in " + c.Workspace + ". " + c.Application +
			" has no access until an administrator gives them back to you."
	}
	return ""
}

// endedGrant tells the user why a connection ended.
func endedGrant(c consent.Connection) string {
	if c.Grant.State != grant.Revoked {
		return "The access that you gave to " + c.Application + " has expired."
	}
	we := "We disconnected " + c.Application
	switch c.Grant.Reason {
	case grant.Replayed:
		return we + " because an old access key of the application was used again. " +
			c.Grant.Reason.Suspicion(c.Grant.Ending)
	case grant.CodeReused:
		return we + " because a one-time sign-in code was used again. " + c.Grant.Reason.Suspicion(c.Grant.Ending)
	case grant.CodeGuessed:
		return we + " after five failed attempts to use a one-time sign-in code."
	case grant.ByUser:
		return "You disconnected " + c.Application + "."
	case grant.MembershipOver:
		return "Your membership of " + c.Workspace + " ended."
	}
	return c.Grant.Reason.Explain(c.Application, nil, nil)
}

// disconnectApp takes id, of one approval.
func (s *Settings) disconnectApp(r *request) error {
	ended, err := s.revokeGrants(r, func(c consent.Connection) bool {
		return c.Grant.ID == r.id() && c.Grant.State != grant.Revoked
	})
	if ended == nil {
		return r.outcome(err, notConnected, nil)
	}
	return r.outcome(err, ended.Application+" was disconnected from "+ended.Workspace+".", nil)
}

// disconnectAll takes id, of an application, and ends every approval of it. If the store fails in between, the user can
// send the form again for the others.
func (s *Settings) disconnectAll(r *request) error {
	ended, err := s.revokeGrants(r, func(c consent.Connection) bool {
		return c.Grant.ClientID == r.id() && c.Live(s.Now())
	})
	if ended == nil {
		return r.outcome(err, notConnected, nil)
	}
	return r.outcome(err, ended.Application+" was disconnected from all workspaces.", nil)
}

const notConnected = "The application is no longer connected."

// revokeGrants revokes those of the user's grants, and returns the last one.
func (s *Settings) revokeGrants(r *request, which func(consent.Connection) bool) (*consent.Connection, error) {
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	var last *consent.Connection
	for _, c := range connections {
		if !which(c) {
			continue
		}
		if err := s.Grants.Revoke(r.ctx(), c.Grant, grant.ByUser, r.user.Actor()); err != nil {
			return nil, err
		}
		last = &c
	}
	return last, nil
}
