package settings

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An auditView is Settings → Audit log, for one workspace.
type auditView struct {
	logPage
	Events []ui.Event
}

func (*auditView) Template() string { return "audit" }

func (s *Settings) auditLog() workspaceLog[audit.Entry] {
	return workspaceLog[audit.Entry]{
		section:  auditSection,
		size:     50,
		read:     s.Store.EventsOfWorkspace,
		cursor:   audit.Entry.Cursor,
		name:     "audit",
		exported: audit.AuditExported,
		columns: []string{
			"at", "action", "actor", "person", "application", "subject", "detail", "requestId", "userId", "tenantId",
			"id",
		},
		cells: auditCells,
		line: func(e audit.Entry) any {
			return auditLine{
				e.ID, e.At.UTC(), e.WorkspaceID, e.UserID, e.Actor, e.Action, e.Subject, e.Detail, e.RequestID,
			}
		},
	}
}

func (s *Settings) showAuditLog(r *request) error {
	entries, common, err := s.auditLog().entries(r)
	if err != nil {
		return err
	}
	view := &auditView{logPage: common}
	for _, e := range entries {
		view.Events = append(view.Events, eventView(e, nil))
	}
	return r.show(view)
}

// An auditLine is the exported JSON of one event.
type auditLine struct {
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

func auditCells(e audit.Entry) []string {
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
