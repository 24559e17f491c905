// Package auditlog serves the settings page with the audit log of one workspace, and its export.
//
//	GET /settings/audit?tenant=&before=   the log, latest first
//	GET /settings/audit.jsonl?tenant=     all of its events, one JSON object a line
package auditlog

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "audit", Title: "Audit log", Needs: perm.AccountAPIAccess}

// Log is the audit log.
type Log interface {
	session.Auditor
	EventsOfWorkspace(ctx context.Context, workspaceID uuid.UUID, from audit.Cursor, limit int) ([]audit.Entry, error)
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
		Section.Path() + ".jsonl": {"GET": h.export()},
	}
}

const (
	pageSize   = 50
	exportPage = 500
	exportTime = 5 * time.Minute
)

// show serves GET /settings/audit.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		from := readMark(v.R.URL.Query().Get("before"))
		entries, err := h.events.EventsOfWorkspace(v.R.Context(), here.Workspace.ID, from, pageSize+1)
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
		}
		if len(entries) > pageSize {
			entries = entries[:pageSize]
			view.Older = here.Path(Section) + "&before=" + url.QueryEscape(writeMark(entries[pageSize-1].Cursor()))
		}
		for _, e := range entries {
			view.Events = append(view.Events, settings.EventView(e, nil))
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
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
}

func (*view) Template() string { return "audit" }

func writeMark(m audit.Cursor) string {
	return m.At.UTC().Format(time.RFC3339Nano) + "~" + m.ID.String()
}

// readMark parses a mark of writeMark. Other text is the beginning of the log.
func readMark(text string) audit.Cursor {
	at, id, _ := strings.Cut(text, "~")
	moment, atErr := time.Parse(time.RFC3339Nano, at)
	entry, idErr := identity.Parse(id)
	if atErr != nil || idErr != nil {
		return audit.Cursor{}
	}
	return audit.Cursor{At: moment, ID: entry}
}

// A line is the exported JSON of one event.
type line struct {
	ID          uuid.UUID      `json:"id"`
	At          time.Time      `json:"at"`
	WorkspaceID *uuid.UUID     `json:"tenantId"`
	UserID      *uuid.UUID     `json:"userId"`
	Actor       string         `json:"actor"`
	Action      string         `json:"action"`
	Subject     string         `json:"subject"`
	Detail      map[string]any `json:"detail"`
	RequestID   string         `json:"requestId"`
}

// export serves GET /settings/audit.jsonl, with the latest event first.
func (h *Handler) export() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		workspaceID := here.Workspace.ID
		if v.R.Method == http.MethodGet {
			exported := v.Event(&workspaceID, audit.AuditExported, "tenant:"+workspaceID.String(), nil)
			if err := h.events.Record(v.R.Context(), exported); err != nil {
				return err
			}
		}
		entries, err := h.events.EventsOfWorkspace(v.R.Context(), workspaceID, audit.Cursor{}, exportPage)
		if err != nil {
			return err
		}
		v.W.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
		v.W.Header().Set("Content-Disposition", `attachment; filename="audit-`+workspaceID.String()+`.jsonl"`)
		v.W.Header().Set("X-Content-Type-Options", "nosniff")
		v.W.Header().Set("Cache-Control", "no-store")
		// The error means that the writer has no deadlines.
		_ = http.NewResponseController(v.W).SetWriteDeadline(time.Now().Add(exportTime))
		h.write(v, workspaceID, entries)
		return nil
	})
}

// write writes page after page. If the store fails after the response has begun, no status can report it. The
// connection is then aborted, so that the client does not take a part for the whole.
func (h *Handler) write(v *settings.Request, workspaceID uuid.UUID, entries []audit.Entry) {
	encoder := web.NewEncoder(v.W)
	for len(entries) > 0 {
		for _, e := range entries {
			err := encoder.Encode(
				line{e.ID, e.At.UTC(), e.WorkspaceID, e.UserID, e.Actor, e.Action, e.Subject, e.Detail, e.RequestID},
			)
			if err != nil {
				return // the client has closed the connection
			}
		}
		if len(entries) < exportPage {
			return
		}
		var err error
		last := entries[len(entries)-1].Cursor()
		entries, err = h.events.EventsOfWorkspace(v.R.Context(), workspaceID, last, exportPage)
		if err != nil {
			h.Log.ErrorContext(v.R.Context(), "audit export aborted", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}
