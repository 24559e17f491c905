package connectors

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/shared/perm"
)

// logSection is the page with the connection log.
var logSection = ui.Section{
	Name:   "connectors/log",
	Title:  "Connection log",
	Needs:  perm.AccountAPIAccess,
	Parent: Section.Name,
}

// Subsections returns the pages of the section that have no link in the navigation.
func Subsections() []ui.Section { return []ui.Section{logSection} }

// logPageSize is how many attempts a page shows.
const logPageSize = 25

// A logPage is the connection log of one workspace.
type logPage struct {
	ui.Frame
	Key        string // proves that a form came from this page (endpoint/settings)
	Workspaces []ui.Workspace
	Workspace  ui.Workspace
	Attempts   []foundAttempt
	Older      string // path to older attempts, or ""
	Later      bool   // this is not the first page
	Search     settings.Search
	Of         string // name of the only connector, or ""
}

func (*logPage) Template() string { return "connectionlog" }

// A foundAttempt is an attempt with its connector.
type foundAttempt struct {
	connectionAttempt
	Application string
	Host        string
	Live        bool // it led to a connection that can be disconnected
}

// Export returns the path of an export of the search.
func (d *logPage) Export(extension string) string {
	return logSection.Path() + "." + extension + "?tenant=" + d.Workspace.ID + d.Search.Query()
}

// Latest returns the path of the first page of the search.
func (d *logPage) Latest() string { return d.All() + d.Search.Query() }

// All returns the path of the page without a search.
func (d *logPage) All() string { return logSection.Path() + "?tenant=" + d.Workspace.ID }

// showLog serves GET /settings/connectors/log.
func (h *Handler) showLog() http.Handler {
	return h.Page(func(v *settings.Request) error {
		query := v.R.URL.Query()
		here, err := h.At(v, query.Get("tenant"), logSection)
		if err != nil {
			return err
		}
		from, search := settings.ReadMark(query.Get("before")), settings.ReadSearch(query)
		var found []connectionlog.Found
		err = h.LogTurn(v, func() error {
			return h.ReadLog(v.R.Context(), func() (err error) {
				found, err = h.policies.SearchConnections(
					v.R.Context(), here.Workspace.ID, search.Of(), from, logPageSize+1,
				)
				return err
			})
		})
		if err != nil {
			return err
		}
		frame, err := h.FrameIn(v, here, logSection)
		if err != nil {
			return err
		}
		page := &logPage{
			Frame:      frame,
			Key:        h.NewKey(v),
			Workspaces: here.Workspaces(),
			Workspace:  here.View(),
			Later:      from != audit.Cursor{},
			Search:     search,
		}
		if len(found) > logPageSize {
			found = found[:logPageSize]
			page.Older = page.Latest() + "&before=" + settings.WriteMark(cursorOf(found[logPageSize-1]))
		}
		for _, f := range found {
			page.Attempts = append(page.Attempts, foundAttempt{
				connectionAttempt: attemptView(f.Attempt),
				Application:       f.Connector.Name,
				Host:              hostOf(f.Connector),
				Live:              f.Attempt.Live,
			})
		}
		if search.Client != "" && len(page.Attempts) > 0 {
			page.Of = page.Attempts[0].Application
		}
		h.Pages.Show(v.W, v.R, search.Status(), page)
		return nil
	})
}

func cursorOf(f connectionlog.Found) audit.Cursor {
	return audit.Cursor{At: f.Attempt.At, ID: f.Attempt.ID}
}

// A logLine is the exported JSON of one attempt.
type logLine struct {
	ID          uuid.UUID `json:"id"`
	At          time.Time `json:"at"`
	ClientID    uuid.UUID `json:"clientId"`
	Application string    `json:"application"`
	Platform    string    `json:"platform"`
	Person      string    `json:"person"`
	Email       string    `json:"email"`
	Outcome     string    `json:"outcome"`
	Reason      string    `json:"reason"`
	RequestID   string    `json:"requestId"`
}

var logColumns = []string{
	"at", "application", "platform", "person", "email", "outcome", "reason", "requestId", "clientId", "id",
}

func logLineOf(f connectionlog.Found) logLine {
	return logLine{
		ID:          f.Attempt.ID,
		At:          f.Attempt.At.UTC(),
		ClientID:    f.Connector.ID,
		Application: f.Connector.Name,
		Platform:    string(workspace.PlatformOf(f.Connector.Platform)),
		Person:      f.Attempt.Person,
		Email:       f.Attempt.Email,
		Outcome:     string(f.Attempt.Outcome),
		Reason:      f.Attempt.Reason,
		RequestID:   f.Attempt.RequestID,
	}
}

func logCells(f connectionlog.Found) []string {
	l := logLineOf(f)
	return []string{
		l.At.Format(time.RFC3339),
		l.Application,
		l.Platform,
		l.Person,
		l.Email,
		l.Outcome,
		l.Reason,
		l.RequestID,
		l.ClientID.String(),
		l.ID.String(),
	}
}

// exportLog serves GET /settings/connectors/log.jsonl and .csv, with the latest attempt first.
func (h *Handler) exportLog(as settings.Format) http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), logSection)
		if err != nil {
			return err
		}
		return h.LogTurn(v, func() error {
			workspaceID := here.Workspace.ID
			if v.R.Method == http.MethodGet {
				exported := v.Event(&workspaceID, audit.ConnectionsExported, "tenant:"+workspaceID.String(), nil)
				if err := h.auditor.Record(v.R.Context(), exported); err != nil {
					return err
				}
			}
			search := settings.ReadSearch(v.R.URL.Query()).Of()
			return settings.Export[connectionlog.Found]{
				Name:    "connections-" + workspaceID.String(),
				Columns: logColumns,
				Cells:   logCells,
				Line:    func(f connectionlog.Found) any { return logLineOf(f) },
				Page: func(after *connectionlog.Found) ([]connectionlog.Found, error) {
					var from audit.Cursor
					if after != nil {
						from = cursorOf(*after)
					}
					return h.policies.SearchConnections(v.R.Context(), workspaceID, search, from, settings.ExportPage)
				},
			}.Write(h.Settings, v, here, as)
		})
	})
}
