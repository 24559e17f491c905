// Package apps serves the settings page with every grant of the user.
//
//	GET  /settings/apps
//	POST /settings/apps/disconnect      one approval
//	POST /settings/apps/disconnect-all  every approval of one application
package apps

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "apps", Title: "Connected apps"}

// Connections reads the applications that a user has connected.
type Connections interface {
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
}

// Grants revokes grants; grant.Service implements it.
type Grants interface {
	Revoke(ctx context.Context, g grant.Grant, reason grant.Reason, actor string) error
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	*settings.Settings
	connections Connections
	grants      Grants
	address     string // of the MCP endpoint
}

// New returns a Handler. baseURL is the base URL of the API.
func New(s *settings.Settings, connections Connections, grants Grants, baseURL string) *Handler {
	return &Handler{
		Settings:    s,
		connections: connections,
		grants:      grants,
		address:     baseURL + "/mcp",
	}
}

// Routes returns the routes of the page and its form.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():                 {"GET": h.show()},
		Section.Path() + "/disconnect": {"POST": h.disconnect()},

		Section.Path() + "/disconnect-all": {"POST": h.disconnectAll()},
	}
}

// A view is Settings → Connected apps.
type view struct {
	ui.Frame
	Key     string
	Address string // of the MCP endpoint
	Live    []application
	List    settings.List // of the approvals
	Ended   []connection
	Former  settings.List // of the ended approvals
}

func (*view) Template() string { return "apps" }

// An application has the approvals of the user for one client.
type application struct {
	ID, Name  string
	Approvals []connection // on this page
	All       int          // approvals on all pages
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

// A connection is one grant.
type connection struct {
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

// show serves GET /settings/apps.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		connections, err := h.connections.ConnectedApps(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.Frame(v, Section)
		if err != nil {
			return err
		}
		view := &view{Frame: frame, Key: h.NewKey(v), Address: h.address}
		var live []consent.Connection
		for _, c := range connections {
			if c.Live(h.Now()) {
				live = append(live, c)
			} else {
				view.Ended = append(view.Ended, connectionView(c, endedGrant(c)))
			}
		}
		view.Ended, view.Former = settings.Listing[connection]{
			Of:        "ended approvals",
			Path:      Section.Path(),
			Parameter: "ended",
			Size:      endedShown,
		}.Select(v.R.URL.Query(), view.Ended)
		if err := h.addLive(v, view, live); err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

// addLive adds the page of live connections that the URL selects.
func (h *Handler) addLive(v *settings.Request, view *view, live []consent.Connection) error {
	live, count := byApplication(live)
	live, view.List = settings.Listing[consent.Connection]{Of: "approvals", Path: Section.Path()}.
		Select(v.R.URL.Query(), live)
	for i, c := range live {
		approval := connectionView(c, "")
		if approval.Paused = paused(c); approval.Paused == "" {
			approval.Without = c.Without()
		}
		var err error
		if approval.Ask, err = h.ask(v, c, i); err != nil {
			return err
		}
		id, last := c.Grant.ClientID, len(view.Live)-1
		if last >= 0 && view.Live[last].ID == id.String() {
			view.Live[last].Approvals = append(view.Live[last].Approvals, approval)
			continue
		}
		view.Live = append(view.Live, application{id.String(), c.Application, []connection{approval}, count[id]})
	}
	return nil
}

// endedShown is how many ended approvals a page shows, and mostAsks limits its buttons that ask an administrator.
const (
	endedShown = 10
	mostAsks   = 10
)

// ask returns the button for what the nth connection lacks, or nil if it lacks nothing that an administrator can give.
func (h *Handler) ask(v *settings.Request, c consent.Connection, n int) (*ui.Ask, error) {
	missing := c.Grant.Permissions.Without(c.Held)
	if n >= mostAsks || !c.Member || (len(missing) == 0 && c.Blocked() != grant.LLMOff) {
		return nil, nil
	}
	if c.Blocked() == grant.LLMOff {
		missing = nil
	}
	member := workspace.Membership{
		Workspace:   workspace.Workspace{ID: c.Grant.WorkspaceID, Name: c.Workspace},
		Permissions: c.Held,
	}
	ask, err := h.Ask(v, member, missing, c.Application, Section.Path())
	return &ask, err
}

func connectionView(c consent.Connection, ended string) connection {
	return connection{
		ID:          c.Grant.ID.String(),
		Application: c.Application,
		Workspace:   c.Workspace,
		Permissions: c.Grant.Permissions,
		Since:       c.Grant.Created,
		LastUsed:    c.Grant.LastUsed,
		Ends:        c.Grant.Ends,
		Ended:       ended,
		EndedAt:     endedAt(c.Grant),
		Narrowed:    c.NarrowedAt,
		Alarming: c.Grant.Reason == grant.Replayed || c.Grant.Reason == grant.CodeReused ||
			c.Grant.Reason == grant.CodeGuessed,
		Explained: c.Grant.Ending != nil,
		Home:      c.Home,
	}
}

// paused returns why a connection cannot do anything now, or "".
func paused(c consent.Connection) string {
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

func endedAt(g grant.Grant) time.Time {
	if g.State == grant.Revoked && g.RevokedAt != nil {
		return *g.RevokedAt
	}
	return g.Ends
}

// disconnect serves POST /settings/apps/disconnect.
func (h *Handler) disconnect() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		id, ok := v.ID()
		connections, err := h.connections.ConnectedApps(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		for _, c := range connections {
			if !ok || c.Grant.ID != id || c.Grant.State == grant.Revoked {
				continue
			}
			if err := h.grants.Revoke(v.R.Context(), c.Grant, grant.ByUser, v.Current.Actor()); err != nil {
				return err
			}
			return h.Done(v, Section.Path(), c.Application+" was disconnected from "+c.Workspace+".")
		}
		return h.Done(v, Section.Path(), "The application is no longer connected.")
	})
}

// disconnectAll serves POST /settings/apps/disconnect-all: it ends every approval of the application that the form
// names. If the store fails in between, the user can send the form again for the others.
func (h *Handler) disconnectAll() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		id, ok := v.ID()
		connections, err := h.connections.ConnectedApps(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		name := ""
		for _, c := range connections {
			if !ok || c.Grant.ClientID != id || !c.Live(h.Now()) {
				continue
			}
			if err := h.grants.Revoke(v.R.Context(), c.Grant, grant.ByUser, v.Current.Actor()); err != nil {
				return err
			}
			name = c.Application
		}
		if name == "" {
			return h.Done(v, Section.Path(), "The application is no longer connected.")
		}
		return h.Done(v, Section.Path(), name+" was disconnected from all workspaces.")
	})
}
