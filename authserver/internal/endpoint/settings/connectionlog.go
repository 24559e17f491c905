package settings

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
)

// A connectionLogView is the connection log of one workspace.
type connectionLogView struct {
	logPage
	Attempts []foundAttempt
	Of       string // name of the only connector, or ""
}

func (*connectionLogView) Template() string { return "connectionlog" }

// A foundAttempt is an attempt with its connector.
type foundAttempt struct {
	connectionAttempt
	Application string
	Host        string
	Live        bool // it led to a connection that can be disconnected
}

// A connectionAttempt is one attempt to connect.
type connectionAttempt struct {
	ID        string
	At        time.Time
	Person    string // "" if unknown
	Steps     []step
	Outcome   string // waiting, working, refused, denied, ended: the style
	Word      string // the same in words
	Reason    string
	RequestID string
}

// A step is one step of an attempt.
type step struct {
	Name  string
	Taken bool
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
		view.Attempts = append(view.Attempts, foundAttempt{
			connectionAttempt: attemptView(f.Attempt),
			Application:       f.Connector.Name,
			Host:              hostOf(f.Connector),
			Live:              f.Attempt.Live,
		})
	}
	if view.Search.Client != "" && len(view.Attempts) > 0 {
		view.Of = view.Attempts[0].Application
	}
	return r.show(view)
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

// hostOf returns the host of a connector's metadata document or its callback, or "".
func hostOf(c connectionlog.Connector) string {
	host := (client.Client{Address: c.Address}).Domain()
	if host == "" && len(c.Redirects) > 0 {
		host = consent.Callback{URI: c.Redirects[0]}.Host()
	}
	return host
}

var stepNames = [...]string{
	connectionlog.Requested: "Requested",
	connectionlog.Consented: "Approved",
	connectionlog.Exchanged: "Code exchanged",
	connectionlog.Called:    "First call",
	connectionlog.Refreshed: "Refreshed",
}

var outcomeWords = map[connectionlog.Outcome]string{
	connectionlog.Waiting: "Waiting",
	connectionlog.Working: "Connected",
	connectionlog.Refused: "Refused",
	connectionlog.Denied:  "Denied",
	connectionlog.Ended:   "Ended",
}

func attemptView(a connectionlog.Attempt) connectionAttempt {
	out := connectionAttempt{
		ID:        a.ID.String(),
		At:        a.At,
		Person:    a.Person,
		Outcome:   string(a.Outcome),
		Word:      outcomeWords[a.Outcome],
		Reason:    a.Reason,
		RequestID: a.RequestID,
	}
	if a.Orphan {
		out.Reason = "This token request does not belong to a known approval. " + a.Reason
		return out
	}
	for i, taken := range a.Taken {
		out.Steps = append(out.Steps, step{Name: stepNames[i], Taken: taken})
	}
	return out
}
