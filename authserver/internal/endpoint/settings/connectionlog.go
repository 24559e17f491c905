package settings

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
)

// A connectionLogView is the connection log of one workspace.
type connectionLogView struct {
	logPage
	Attempts []attempt
	Of       string // name of the only connector, or ""
}

// An attempt is an attempt to connect, with its connector.
type attempt struct {
	connectionlog.Attempt
	Connector connector
}

// Steps returns the names of the steps, in their order.
func (a attempt) Steps() []string {
	return []string{
		connectionlog.Requested: "Requested",
		connectionlog.Consented: "Approved",
		connectionlog.Exchanged: "Code exchanged",
		connectionlog.Called:    "First call",
		connectionlog.Refreshed: "Refreshed",
	}
}

// Word returns the outcome in words.
func (a attempt) Word() string {
	return map[connectionlog.Outcome]string{
		connectionlog.Waiting: "Waiting",
		connectionlog.Working: "Connected",
		connectionlog.Refused: "Refused",
		connectionlog.Denied:  "Denied",
		connectionlog.Ended:   "Ended",
	}[a.Outcome]
}

// Why returns the reason of the outcome, or "".
func (a attempt) Why() string {
	if a.Orphan {
		return "This token request does not belong to a known approval. " + a.Reason
	}
	return a.Reason
}

func (s *Settings) connectionLog() workspaceLog[connectionlog.Found] {
	return workspaceLog[connectionlog.Found]{
		section:  logSection,
		size:     25,
		read:     s.Store.SearchConnections,
		cursor:   func(f connectionlog.Found) audit.Cursor { return audit.Cursor{At: f.Attempt.At, ID: f.Attempt.ID} },
		name:     "connections",
		exported: audit.ConnectionsExported,
		columns: []string{
			"at", "application", "platform", "person", "email", "outcome", "reason", "requestId", "clientId", "id",
		},
		cells: connectionCells,
		line:  func(f connectionlog.Found) any { return connectionLineOf(f) },
	}
}

func (s *Settings) showConnectionLog(r *request) error {
	found, common, err := s.connectionLog().entries(r)
	if err != nil {
		return err
	}
	view := &connectionLogView{logPage: common}
	for _, f := range found {
		view.Attempts = append(view.Attempts, attempt{f.Attempt, connector{f.Connector}})
	}
	if view.Search.Client != "" && len(found) > 0 {
		view.Of = found[0].Connector.Name
	}
	return r.show("connectionlog", view)
}

// A connectionLine is the exported JSON of one attempt.
type connectionLine struct {
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

func connectionLineOf(f connectionlog.Found) connectionLine {
	return connectionLine{
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

func connectionCells(f connectionlog.Found) []string {
	l := connectionLineOf(f)
	return []string{
		l.At.Format(time.RFC3339), l.Application, l.Platform, l.Person, l.Email, l.Outcome, l.Reason, l.RequestID,
		l.ClientID.String(), l.ID.String(),
	}
}
