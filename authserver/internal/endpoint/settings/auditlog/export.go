package auditlog

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/web"
)

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

func lineOf(e audit.Entry) line {
	return line{e.ID, e.At.UTC(), e.WorkspaceID, e.UserID, e.Actor, e.Action, e.Subject, e.Detail, e.RequestID}
}

// columns are the column names of the CSV file.
var columns = []string{
	"at", "action", "actor", "person", "application", "subject", "detail", "requestId", "userId", "tenantId", "id",
}

// cells returns the cells of an event.
func cells(e audit.Entry) []string {
	id := func(id *uuid.UUID) string {
		if id == nil {
			return ""
		}
		return id.String()
	}
	var detail strings.Builder
	_ = web.NewEncoder(&detail).Encode(e.Detail) // it was JSON in the database
	return []string{
		e.At.UTC().Format(time.RFC3339),
		e.Action,
		e.Actor,
		e.Person,
		e.Application,
		e.Subject,
		strings.TrimSpace(detail.String()),
		e.RequestID,
		id(e.UserID),
		id(e.WorkspaceID),
		e.ID.String(),
	}
}

// export serves GET /settings/audit.jsonl and .csv, with the latest event first.
func (h *Handler) export(as settings.Format) http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		return h.LogTurn(v, func() error {
			workspaceID := here.Workspace.ID
			if v.R.Method == http.MethodGet {
				exported := v.Event(&workspaceID, audit.AuditExported, "tenant:"+workspaceID.String(), nil)
				if err := h.events.Record(v.R.Context(), exported); err != nil {
					return err
				}
			}
			search := settings.ReadSearch(v.R.URL.Query()).Of()
			return settings.Export[audit.Entry]{
				Name:    "audit-" + workspaceID.String(),
				Columns: columns,
				Cells:   cells,
				Line:    func(e audit.Entry) any { return lineOf(e) },
				Page: func(after *audit.Entry) ([]audit.Entry, error) {
					var from audit.Cursor
					if after != nil {
						from = after.Cursor()
					}
					return h.events.EventsOfWorkspace(v.R.Context(), workspaceID, search, from, settings.ExportPage)
				},
			}.Write(h.Settings, v, here, as)
		})
	})
}
