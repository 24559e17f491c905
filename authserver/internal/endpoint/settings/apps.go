package settings

import (
	"cmp"
	"slices"
	"strings"
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

// A connectedApp has the approvals of the user for one client.
type connectedApp struct {
	ID, Name  string
	Approvals []approval // on this page
	All       int        // approvals on all pages
}

// An approval is one grant. Ended, EndedAt and Alarming are set if it has ended; Paused, Lost and Ask, if it is active.
type approval struct {
	consent.Connection
	Ended    string // how it ended
	EndedAt  time.Time
	Alarming bool     // it ended because a used code or token was presented
	Paused   string   // why the connection has no access now, or ""
	Lost     perm.Set // permissions that the user lost, unless the connection is paused
	Ask      *ui.Ask  // for what it lacks; nil if an administrator cannot give it
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
			view.Ended = append(view.Ended, endedApproval(c))
		}
	}
	view.Ended, view.Former = listing[approval]{
		Of:        "ended approvals",
		Parameter: "ended",
		Size:      endedShown,
	}.Select(r, view.Ended)
	if err := s.addLive(r, view, live); err != nil {
		return err
	}
	return r.show("apps", view)
}

// addLive adds the page of live connections that the URL selects.
func (s *Settings) addLive(r *request, view *appsView, live []consent.Connection) error {
	live, count := byApplication(live)
	live, view.List = listing[consent.Connection]{Of: "approvals"}.Select(r, live)
	for i, c := range live {
		one := approval{Connection: c, Paused: whyPaused(c)}
		if one.Paused == "" {
			one.Lost = c.Without()
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

func endedApproval(c consent.Connection) approval {
	at := c.Grant.Ends
	if c.Grant.State == grant.Revoked && c.Grant.RevokedAt != nil {
		at = *c.Grant.RevokedAt
	}
	return approval{Connection: c, Ended: howEnded(c), EndedAt: at, Alarming: looksStolen(c.Grant.Reason)}
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

// howEnded tells the user why a connection ended.
func howEnded(c consent.Connection) string {
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
	return s.revokeGrants(r, "", func(c consent.Connection) bool {
		return c.Grant.ID == r.id() && c.Grant.State != grant.Revoked
	})
}

// disconnectAll takes id, of an application, and ends every approval of it. If the store fails in between, the user can
// send the form again for the others.
func (s *Settings) disconnectAll(r *request) error {
	return s.revokeGrants(r, "all workspaces", func(c consent.Connection) bool {
		return c.Grant.ClientID == r.id() && c.Live(s.Now())
	})
}

const notConnected = "The application is no longer connected."

// revokeGrants revokes the grants of the user that which selects. The notice names from, or the workspace of the grant
// if from is "".
func (s *Settings) revokeGrants(r *request, from string, which func(consent.Connection) bool) error {
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	notice := notConnected
	for _, c := range connections {
		if !which(c) {
			continue
		}
		if err := s.Grants.Revoke(r.ctx(), c.Grant, grant.ByUser, r.user.Actor()); err != nil {
			return err
		}
		notice = c.Application + " was disconnected from " + cmp.Or(from, c.Workspace) + "."
	}
	return r.done(notice)
}

// An assistantsView is Settings → Connect an assistant. It tells a user how.
type assistantsView struct {
	page
	Address    string // of the MCP endpoint
	Workspaces []place
}

// A place is what an assistant can do in one workspace.
type place struct {
	workspace.Workspace
	Manages bool     // the user may change what connectors may do there
	Enables bool     // the user may switch the LLM integration on
	Without string   // why an assistant cannot do what is allowed, or ""
	Allowed perm.Set // what the user can let an assistant do
	Refused []string // platforms that the workspace does not allow
	Ask     *ui.Ask  // nil if the LLM integration is on, or the user may switch it on
}

// mostPlacesAsk limits the buttons of the page that ask an administrator.
const mostPlacesAsk = 20

func (s *Settings) showAssistants(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	modules, err := s.Store.Modules(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &assistantsView{Address: s.BaseURL + "/mcp"}
	for i, m := range memberships {
		one := placeOf(m, view.Address)
		one.Without = missingModule(one.Allowed, modules[m.Workspace.ID])
		if !one.LLMIntegration && !one.Enables && i < mostPlacesAsk {
			ask, err := r.offer(m, nil, "", r.section.Path())
			if err != nil {
				return err
			}
			one.Ask = &ask
		}
		view.Workspaces = append(view.Workspaces, one)
	}
	return r.show("connect", view)
}

func placeOf(m workspace.Membership, address string) place {
	policy := m.Workspace.Connectors
	out := place{
		Workspace: m.Workspace,
		Manages:   m.Permissions.Has(perm.AccountAPIAccess),
		Allowed:   m.Permissions.Intersect(policy.Permissions).Usable(address),
	}
	out.Enables = out.Manages && m.Permissions.Has(perm.AccountWriteMembers)
	for _, platform := range workspace.Platforms() {
		if !slices.Contains(policy.Platforms, platform) {
			out.Refused = append(out.Refused, platform.Name())
		}
	}
	return out
}

// missingModule says which module of the permissions cannot be used, or returns "".
func missingModule(allowed perm.Set, states map[string]workspace.ModuleState) string {
	for _, p := range allowed {
		if !p.OfModule() {
			continue
		}
		state, name := states[p.Module()], strings.ToUpper(p.Module()[:1])+p.Module()[1:]
		switch {
		case !state.Enabled:
			return "The module " + name + " is off in this workspace, so assistants cannot use it. Ask the person " +
				"who runs this service to enable it."
		case !state.Provisioned:
			return "The module " + name + " is not set up in this workspace yet, so assistants cannot use it. Ask " +
				"the person who runs this service to set it up."
		}
	}
	return ""
}
