// Package connectionlog records how far a connector's attempts to connect to a workspace got, and why they failed.
//
// An Attempt is one attempt: the authorization request, the user's approval, the exchange of the code, the first call
// and the first refresh. If there is a grant, the attempt is read from the grant and its events, and nothing is stored
// twice. An attempt that ended before that is a StoppedAttempt (stopped.go), which endpoint/protocol/authorize and
// engine record. Neither contains a code, token or other secret.
//
// Callers: endpoint/protocol/authorize and engine (record), store/postgres (store and read), endpoint/settings (show).
package connectionlog

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// A Step is one step of an attempt.
type Step int

// The steps, in their order.
const (
	Requested Step = iota // the authorization request came in
	Consented             // the user approved
	Exchanged             // the code was exchanged for tokens
	Called                // the first call with an access token
	Refreshed             // the first refresh
)

// An Outcome is the state of an attempt.
type Outcome string

// The outcomes.
const (
	Waiting Outcome = "waiting" // for the user, or for the application
	Working Outcome = "working"
	Refused Outcome = "refused"
	Denied  Outcome = "denied" // by the user
	Ended   Outcome = "ended"  // it worked and is over
)

// An Attempt is one attempt as it is shown.
type Attempt struct {
	ID        uuid.UUID
	At        time.Time // when it began; for a StoppedAttempt, when it was last recorded
	Person    string    // name of the user; "" if no user was signed in
	Email     string
	Taken     [Refreshed + 1]bool // the steps that were reached
	Orphan    bool                // a token request that belongs to no known approval; it reached no step
	Outcome   Outcome
	Live      bool   // its grant is active and has not expired
	Reason    string // in plain words, or ""
	RequestID string // of the last known request, or ""
}

// A Connector is a connector of a workspace.
type Connector struct {
	ID        uuid.UUID
	Name      string
	Platform  string   // connectorPlatform, or ""
	Address   string   // URL of its metadata document, or ""
	Redirects []string // redirect URIs
	Deleted   bool
	Latest    *Attempt // nil if there is none
}

// A Found is an attempt that a search found, with its connector. The connector's Latest is nil.
type Found struct {
	Connector Connector
	Attempt   Attempt
}

// A Refusal is the last refused token request of a grant.
type Refusal struct {
	At     time.Time
	Reason string
}

// OfGrant returns the attempt that led to a grant of an application. firstUsed is when the grant was first used for a
// call, or nil.
func OfGrant(g grant.Grant, application string, firstUsed *time.Time, last *Refusal, now time.Time) Attempt {
	a := Attempt{ID: g.ID, At: g.Created, Live: g.State == grant.Active && now.Before(g.Ends)}
	a.Taken = [...]bool{
		Requested: true,
		Consented: true,
		Exchanged: g.Generation > 0,
		Called:    firstUsed != nil,
		Refreshed: g.Generation > 1,
	}
	switch {
	case g.State == grant.Revoked:
		a.Outcome, a.Reason = Ended, g.Reason.Explain(application, g.RevokedAt, g.Ending)
		if g.Ending != nil {
			a.Reason += " To use it again, the user connects it again, with the same choices."
		}
	case !now.Before(g.Ends):
		a.Outcome, a.Reason = Ended, "The access that the user approved has expired."
	case last != nil && (g.LastUsed == nil || last.At.After(*g.LastUsed)):
		a.Outcome, a.Reason = Refused, last.Reason
	case g.State == grant.Active:
		a.Outcome = Working
	case now.Sub(g.Created) > client.CodeLife:
		a.Outcome, a.Reason = Refused, "The user approved, but the application never exchanged the code."
	default:
		a.Outcome, a.Reason = Waiting, "The user approved. The application has one minute to exchange the code."
	}
	return a
}
