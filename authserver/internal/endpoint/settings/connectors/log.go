package connectors

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/identity"
)

// A connectorLog is one connector of a workspace, with its latest attempts to connect.
type connectorLog struct {
	ID, Name string
	Platform string
	Host     string // host of its callback or its metadata document
	Deleted  bool
	Attempts []connectionAttempt
	More     string // path to the other attempts, or ""
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

// attemptsShown is how many attempts the page shows of each connector, and attemptsOfOne how many if the URL selects
// one connector.
const (
	attemptsShown = 5
	attemptsOfOne = 50
)

// onlyConnector returns the connector that the URL selects, or nil.
func onlyConnector(v *settings.Request) *uuid.UUID {
	id, err := identity.Parse(v.R.URL.Query().Get("client"))
	if err != nil {
		return nil
	}
	return &id
}

func logView(connectors []connectionlog.Connector, shown int, here settings.Scope) []connectorLog {
	var out []connectorLog
	for _, c := range connectors {
		one := connectorLog{
			ID:       c.ID.String(),
			Name:     c.Name,
			Platform: workspace.PlatformOf(c.Platform).Name(),
			Deleted:  c.Deleted,
		}
		one.Host = hostOf(c)
		for i, w := range c.Attempts {
			if i == shown {
				if shown < attemptsOfOne {
					one.More = here.Path(Section) + "&client=" + c.ID.String() + "#log"
				}
				break
			}
			one.Attempts = append(one.Attempts, attemptView(w))
		}
		out = append(out, one)
	}
	return out
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

func attemptView(w connectionlog.Attempt) connectionAttempt {
	out := connectionAttempt{
		ID:        w.ID.String(),
		At:        w.At,
		Person:    w.Person,
		Outcome:   string(w.Outcome),
		Word:      outcomeWords[w.Outcome],
		Reason:    w.Reason,
		RequestID: w.RequestID,
	}
	if w.Orphan {
		out.Reason = "This token request does not belong to a known approval. " + w.Reason
		return out
	}
	for i, taken := range w.Taken {
		out.Steps = append(out.Steps, step{Name: stepNames[i], Taken: taken})
	}
	return out
}
