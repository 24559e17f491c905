package settings

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

const (
	auditPath  = "/settings/audit"
	auditPage  = 50
	exportPage = 500
	exportTime = 5 * time.Minute
)

// Audit serves GET /settings/audit.
func (h *Handler) Audit() http.Handler {
	return h.page(func(v *request) error {
		here, err := h.at(v, v.r.URL.Query().Get("tenant"), auditPath)
		if err != nil {
			return err
		}
		from := readMark(v.r.URL.Query().Get("before"))
		entries, err := h.Store.EventsOfWorkspace(v.r.Context(), here.Workspace.ID, from, auditPage+1)
		if err != nil {
			return err
		}
		frame, err := h.frameAt(v, here, "audit", "Audit log")
		if err != nil {
			return err
		}
		view := &ui.Audit{
			Frame:      frame,
			Workspaces: workspaces(here.all, &here.Membership),
			Workspace:  workspaceView(here.Membership),
			Later:      from != audit.Cursor{},
		}
		if len(entries) > auditPage {
			entries = entries[:auditPage]
			view.Older = here.path(auditPath) + "&before=" + url.QueryEscape(writeMark(entries[auditPage-1].Cursor()))
		}
		for _, e := range entries {
			view.Events = append(view.Events, eventView(e, nil))
		}
		h.Pages.Show(v.w, v.r, http.StatusOK, view)
		return nil
	})
}

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

// Export serves GET /settings/audit.jsonl, with the latest event first.
func (h *Handler) Export() http.Handler {
	return h.page(func(v *request) error {
		here, err := h.at(v, v.r.URL.Query().Get("tenant"), auditPath)
		if err != nil {
			return err
		}
		workspaceID := here.Workspace.ID
		if v.r.Method == http.MethodGet {
			exported := v.event(&workspaceID, audit.AuditExported, "tenant:"+workspaceID.String(), nil)
			if err := h.Store.Record(v.r.Context(), exported); err != nil {
				return err
			}
		}
		entries, err := h.Store.EventsOfWorkspace(v.r.Context(), workspaceID, audit.Cursor{}, exportPage)
		if err != nil {
			return err
		}
		v.w.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
		v.w.Header().Set("Content-Disposition", `attachment; filename="audit-`+workspaceID.String()+`.jsonl"`)
		v.w.Header().Set("X-Content-Type-Options", "nosniff")
		v.w.Header().Set("Cache-Control", "no-store")
		// The error means that the writer has no deadlines.
		_ = http.NewResponseController(v.w).SetWriteDeadline(time.Now().Add(exportTime))
		h.export(v, workspaceID, entries)
		return nil
	})
}

// export writes page after page. If the store fails after the response has begun, no status can report it. The
// connection is then aborted, so that the client does not take a part for the whole.
func (h *Handler) export(v *request, workspaceID uuid.UUID, entries []audit.Entry) {
	encoder := web.NewEncoder(v.w)
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
		entries, err = h.Store.EventsOfWorkspace(v.r.Context(), workspaceID, last, exportPage)
		if err != nil {
			h.Deps.Log.ErrorContext(v.r.Context(), "audit export aborted", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}
