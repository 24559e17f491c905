package connectors

import (
	"net/http"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A connection is one active grant of a member.
type connection struct {
	ID            string
	Person, Email string
	Application   string
	Permissions   perm.Set
	Since, Ends   time.Time
	LastUsed      *time.Time
	Paused        string // why the connection has no access now, or ""
}

const connectionsShown = 25

// A connectionList is a page of the workspace's connections.
type connectionList struct {
	Rows   []connection
	Words  string // search text, or ""
	Before bool   // this is not the first page
	More   string // path to the next page, or ""
}

// connectionPage returns the page of the workspace's connections that the URL selects.
func (h *Handler) connectionPage(v *settings.Request, here settings.Scope) (connectionList, error) {
	list := connectionList{Words: settings.ReadWords(v.R.URL.Query(), "q")}
	page := consent.ConnectionPage{Words: list.Words, Limit: connectionsShown + 1}
	if before, err := identity.Parse(v.R.URL.Query().Get("before")); err == nil {
		page.Before, list.Before = &before, true
	}
	var found []consent.Connection
	read := func() (err error) {
		found, err = h.connections.WorkspaceConnections(v.R.Context(), here.Workspace.ID, page)
		return err
	}
	err := h.bounded(v, list.Words, read)
	if err != nil {
		return connectionList{}, err
	}
	if len(found) > connectionsShown {
		found = found[:connectionsShown]
		list.More = here.Path(Section) + "&before=" + found[connectionsShown-1].Grant.ID.String()
		if list.Words != "" {
			list.More += "&q=" + url.QueryEscape(list.Words)
		}
		list.More += "#connections"
	}
	for _, c := range found {
		list.Rows = append(list.Rows, connection{
			ID:          c.Grant.ID.String(),
			Person:      c.Person,
			Email:       c.Email,
			Application: c.Application,
			Permissions: c.Grant.Permissions,
			Since:       c.Grant.Created,
			Ends:        c.Grant.Ends,
			LastUsed:    c.Grant.LastUsed,
			Paused:      paused(c),
		})
	}
	return list, nil
}

// bounded runs read. A search may read every connection of the workspace, so it has the same limits as the searches of
// logs.
func (h *Handler) bounded(v *settings.Request, words string, read func() error) error {
	if words == "" {
		return read()
	}
	return h.LogTurn(v, func() error { return h.ReadLog(v.R.Context(), read) })
}

// paused returns why a connection has no access now, or "". The page shows elsewhere that the LLM integration is off.
func paused(c consent.Connection) string {
	if c.Blocked() == grant.PermissionsLost {
		return "No access: " + c.Person + " no longer has any of these permissions."
	}
	return ""
}

// disconnect serves POST /settings/connectors/disconnect: it ends a connection of any member of the workspace.
// from is log if the form is on the page with the connection log.
func (h *Handler) disconnect() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), Section)
		if err != nil {
			return err
		}
		back := here.Path(Section)
		if v.Form.Get("from") == "log" {
			back = here.Path(logSection)
		}
		gone := func() error { return h.Done(v, back, "The application is no longer connected.") }
		id, ok := v.ID()
		if !ok {
			return gone()
		}
		found, err := h.connections.WorkspaceConnections(
			v.R.Context(),
			here.Workspace.ID,
			consent.ConnectionPage{Only: &id, Limit: 1},
		)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return gone()
		}
		c, reason := found[0], grant.ByAdmin
		if c.Grant.UserID == v.Current.User.ID {
			reason = grant.ByUser
		}
		ended, err := h.connections.EndConnection(
			v.R.Context(),
			here.Workspace.ID,
			id,
			reason,
			v.EventIn(here, audit.GrantRevoked, "grant:"+id.String(), nil),
		)
		if err != nil {
			return err
		}
		for _, g := range ended {
			h.grants.PropagateRevocation(v.R.Context(), g.ID, g.Ends, reason)
		}
		return h.Done(v, back, c.Application+" was disconnected from the account of "+c.Person+".")
	})
}
