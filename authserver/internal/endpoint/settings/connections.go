package settings

import (
	"net/url"
	"strconv"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
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

// connections returns the page of the workspace's connections that the URL selects.
func (s *Settings) connections(r *request) (connectionList, error) {
	list := connectionList{Words: readWords(r.query(), "q")}
	wanted := consent.ConnectionPage{Words: list.Words, Limit: connectionsShown + 1}
	if before, err := identity.Parse(r.query().Get("before")); err == nil {
		wanted.Before, list.Before = &before, true
	}
	var found []consent.Connection
	read := func() (err error) {
		found, err = s.Store.WorkspaceConnections(r.ctx(), r.here.Workspace.ID, wanted)
		return err
	}
	if err := r.bounded(list.Words, read); err != nil {
		return connectionList{}, err
	}
	if len(found) > connectionsShown {
		found = found[:connectionsShown]
		list.More = r.path(r.section) + "&before=" + found[connectionsShown-1].Grant.ID.String()
		if list.Words != "" {
			list.More += "&q=" + url.QueryEscape(list.Words)
		}
		list.More += "#connections"
	}
	for _, c := range found {
		row := connection{
			ID:          c.Grant.ID.String(),
			Person:      c.Person,
			Email:       c.Email,
			Application: c.Application,
			Permissions: c.Grant.Permissions,
			Since:       c.Grant.Created,
			Ends:        c.Grant.Ends,
			LastUsed:    c.Grant.LastUsed,
		}
		if c.Blocked() == grant.PermissionsLost { // the page shows elsewhere that the LLM integration is off
			row.Paused = "No access: " + c.Person + " no longer has any of these permissions."
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// bounded runs read. A search may read every connection of the workspace, so it has the same limits as the searches of
// logs.
func (r *request) bounded(words string, read func() error) error {
	if words == "" {
		return read()
	}
	return r.logTurn(func() error { return r.readLog(r.ctx(), read) })
}

// disconnect takes id and ends a connection of any member of the workspace. from is log if the form is on the page with
// the connection log.
func (s *Settings) disconnect(r *request) error {
	back, id := r.path(r.section), r.id()
	if r.form.Get("from") == "log" {
		back = r.path(logSection)
	}
	only := consent.ConnectionPage{Only: &id, Limit: 1}
	found, err := s.Store.WorkspaceConnections(r.ctx(), r.here.Workspace.ID, only)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return r.doneAt(back, notConnected)
	}
	c, reason := found[0], grant.ByAdmin
	if c.Grant.UserID == r.user.User.ID {
		reason = grant.ByUser
	}
	event := r.eventHere(audit.GrantRevoked, "grant:"+id.String(), nil)
	ended, err := s.Store.EndConnection(r.ctx(), r.here.Workspace.ID, id, reason, event)
	if err == nil {
		for _, g := range ended {
			s.Grants.PropagateRevocation(r.ctx(), g.ID, g.Ends, reason)
		}
	}
	return r.outcomeAt(back, err, c.Application+" was disconnected from the account of "+c.Person+".", nil)
}

// A connector is one connector of a workspace, with its latest attempt to connect.
type connector struct {
	Name     string
	Platform string
	Host     string // host of its callback or its metadata document
	Deleted  bool
	Latest   *connectionAttempt // nil if there is none
	Log      string             // path of the log of its attempts
}

// connectorsShown is how many connectors a page shows, and maxPage keeps the offset of a page within an integer of the
// store.
const (
	connectorsShown = 25
	maxPage         = 1_000_000
)

// A pager has the paths of the pages before and after a page of connectors, or "".
type pager struct{ Previous, Next string }

// connectors returns the page of the workspace's connectors that the URL selects.
func (s *Settings) connectors(r *request) ([]connector, pager, error) {
	number, err := strconv.Atoi(r.query().Get("page"))
	if err != nil || number < 1 || number > maxPage {
		number = 1
	}
	offset := (number - 1) * connectorsShown
	found, err := s.Store.Connectors(r.ctx(), r.here.Workspace.ID, offset, connectorsShown+1)
	if err != nil {
		return nil, pager{}, err
	}
	path := func(number int) string { return r.path(r.section) + "&page=" + strconv.Itoa(number) + "#log" }
	var pages pager
	if number > 1 {
		pages.Previous = path(number - 1)
	}
	if len(found) > connectorsShown {
		found, pages.Next = found[:connectorsShown], path(number+1)
	}
	out := make([]connector, len(found))
	for i, c := range found {
		out[i] = connector{
			Name:     c.Name,
			Platform: workspace.PlatformOf(c.Platform).Name(),
			Host:     hostOf(c),
			Deleted:  c.Deleted,
			Log:      r.path(logSection) + "&client=" + c.ID.String(),
		}
		if c.Latest != nil {
			latest := attemptView(*c.Latest)
			out[i].Latest = &latest
		}
	}
	return out, pages, nil
}
