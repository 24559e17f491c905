// Package auditlog serves the settings page with the audit log of one workspace, and its export.
//
//	GET /settings/audit?tenant=&before=   the log, latest first
//	GET /settings/audit.jsonl?tenant=     all of its events, one JSON object a line
//	GET /settings/audit.csv?tenant=       the same for a spreadsheet
//
// Each of them takes a search: request (id), person, application, since and until (days, in UTC).
package auditlog

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "audit", Title: "Audit log", Needs: perm.AccountAPIAccess}

// Log is the audit log.
type Log interface {
	session.Auditor
	EventsOfWorkspace(
		ctx context.Context,
		workspaceID uuid.UUID,
		search audit.Search,
		from audit.Cursor,
		limit int,
	) ([]audit.Entry, error)
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	*settings.Settings
	events Log
}

// New returns a Handler.
func New(s *settings.Settings, events Log) *Handler { return &Handler{s, events} }

// Routes returns the routes of the page and the export.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():            {"GET": h.show()},
		Section.Path() + ".jsonl": {"GET": h.export(settings.JSONLines)},
		Section.Path() + ".csv":   {"GET": h.export(settings.CSV)},
	}
}

// pageSize is how many events a page shows.
const pageSize = 50

// show serves GET /settings/audit.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		query := v.R.URL.Query()
		from, search := settings.ReadMark(query.Get("before")), settings.ReadSearch(query)
		var entries []audit.Entry
		err = h.LogTurn(v, func() error {
			return h.ReadLog(v.R.Context(), func() (err error) {
				entries, err = h.events.EventsOfWorkspace(
					v.R.Context(), here.Workspace.ID, search.Of(), from, pageSize+1,
				)
				return err
			})
		})
		if err != nil {
			return err
		}
		frame, err := h.FrameIn(v, here, Section)
		if err != nil {
			return err
		}
		view := &view{
			Frame:      frame,
			Workspaces: here.Workspaces(),
			Workspace:  here.View(),
			Later:      from != audit.Cursor{},
			Search:     search,
		}
		if len(entries) > pageSize {
			entries = entries[:pageSize]
			view.Older = here.Path(Section) + search.Query() +
				"&before=" + settings.WriteMark(entries[pageSize-1].Cursor())
		}
		for _, e := range entries {
			view.Events = append(view.Events, settings.EventView(e, nil))
		}
		h.Pages.Show(v.W, v.R, search.Status(), view)
		return nil
	})
}

// A view is the audit log of one workspace.
type view struct {
	ui.Frame
	Workspaces []ui.Workspace
	Workspace  ui.Workspace
	Events     []ui.Event
	Older      string // path to older events, or ""
	Later      bool   // this is not the first page
	Search     settings.Search
}

// Export returns the path of an export of the search.
func (d *view) Export(extension string) string {
	return Section.Path() + "." + extension + "?tenant=" + d.Workspace.ID + d.Search.Query()
}

// Latest returns the path of the first page of the search.
func (d *view) Latest() string {
	return Section.Path() + "?tenant=" + d.Workspace.ID + d.Search.Query()
}

// All returns the path of the page without a search.
func (d *view) All() string { return Section.Path() + "?tenant=" + d.Workspace.ID }

func (*view) Template() string { return "audit" }
