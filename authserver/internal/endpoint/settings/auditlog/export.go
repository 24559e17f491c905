package auditlog

import (
	"encoding/csv"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/spreadsheet"
	"github.com/almonerhq/almoner/shared/web"
)

const (
	exportPage = 500
	exportTime = 5 * time.Minute
)

// A format is the format of an export.
type format struct {
	extension, contentType string
	encoder                func(io.Writer) func(audit.Entry) error
}

var jsonLines = format{"jsonl", "application/jsonl; charset=utf-8", func(w io.Writer) func(audit.Entry) error {
	encoder := web.NewEncoder(w)
	return func(e audit.Entry) error { return encoder.Encode(lineOf(e)) }
}}

var csvFile = format{"csv", "text/csv; charset=utf-8; header=present", func(w io.Writer) func(audit.Entry) error {
	writer := csv.NewWriter(w)
	_ = writer.Write([]string{ // the next Flush reports an error
		"at", "action", "actor", "person", "application", "subject", "detail", "requestId", "userId", "tenantId", "id",
	})
	return func(e audit.Entry) error {
		if err := writer.Write(cells(e)); err != nil {
			return err
		}
		writer.Flush()
		return writer.Error()
	}
}}

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

// cells returns the cells of an event. A text that a spreadsheet would run as a formula is marked as text.
func cells(e audit.Entry) []string {
	id := func(id *uuid.UUID) string {
		if id == nil {
			return ""
		}
		return id.String()
	}
	var detail strings.Builder
	_ = web.NewEncoder(&detail).Encode(e.Detail) // it was JSON in the database
	row := []string{
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
	for i, text := range row {
		row[i] = spreadsheet.Cell(text)
	}
	return row
}

// export serves GET /settings/audit.jsonl and .csv, with the latest event first.
func (h *Handler) export(as format) http.Handler {
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
		search := readSearch(v.R.URL.Query()).of()
		entries, err := h.events.EventsOfWorkspace(v.R.Context(), workspaceID, search, audit.Cursor{}, exportPage)
		if err != nil {
			return err
		}
		v.W.Header().Set("Content-Type", as.contentType)
		v.W.Header().Set(
			"Content-Disposition",
			`attachment; filename="audit-`+workspaceID.String()+"."+as.extension+`"`,
		)
		v.W.Header().Set("X-Content-Type-Options", "nosniff")
		v.W.Header().Set("Cache-Control", "no-store")
		// The error means that the writer has no deadlines.
		_ = http.NewResponseController(v.W).SetWriteDeadline(time.Now().Add(exportTime))
		h.write(v, workspaceID, search, entries, as.encoder(v.W))
		return nil
	})
}

// write writes page after page. If the store fails after the response has begun, no status can report it. The
// connection is then aborted, so that the client does not take a part for the whole.
func (h *Handler) write(
	v *settings.Request, workspaceID uuid.UUID, search audit.Search, entries []audit.Entry,
	encode func(audit.Entry) error,
) {
	for len(entries) > 0 {
		for _, e := range entries {
			if encode(e) != nil {
				return // the client has closed the connection
			}
		}
		if len(entries) < exportPage {
			return
		}
		var err error
		last := entries[len(entries)-1].Cursor()
		entries, err = h.events.EventsOfWorkspace(v.R.Context(), workspaceID, search, last, exportPage)
		if err != nil {
			h.Log.ErrorContext(v.R.Context(), "audit export aborted", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}
