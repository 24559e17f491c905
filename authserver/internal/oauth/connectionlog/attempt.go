// Package connectionlog answers: how far did a connector get on its way into a workspace, and why no further?
//
// A walk is one attempt: the authorization request, the user's yes, the exchange of the code, the first call,
// refreshing. Once there is a grant, the walk is read off the grant and its events, and nothing is kept twice; what
// stopped before that is a Stop (stopped.go), which endpoint/authorize and engine note. No code, token or other secret is
// in either.
//
// Callers: endpoint/authorize and engine (note), store/postgres (keep and read), endpoint/settings (show).
package connectionlog

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// A Step is one of those that a walk takes.
type Step int

// The steps, in their order.
const (
	Requested Step = iota // the authorization request came in
	Consented             // the user approved
	Exchanged             // the code was exchanged for tokens
	Called                // the first call with an access token
	Refreshed             // the first refresh
)

// An Outcome is where a walk stands.
type Outcome string

// The outcomes.
const (
	Waiting Outcome = "waiting" // for the user, or for the application
	Working Outcome = "working"
	Refused Outcome = "refused"
	Denied  Outcome = "denied" // by the user
	Ended   Outcome = "ended"  // it worked, and is over
)

// An Attempt is one attempt, as it is shown.
type Attempt struct {
	ID        uuid.UUID
	At        time.Time // when it began, or, of a Stop, when it stopped last
	Person    string    // name of the user, "" while nobody was signed in
	Email     string
	Taken     [Refreshed + 1]bool // which steps
	Orphan    bool                // a token request that belongs to no approval known here: it took none of them
	Outcome   Outcome
	Reason    string // in plain words, "" where there is nothing to say
	RequestID string // of the last request that is known, or ""
}

// A Connector is a connector of a workspace, with its latest walks first.
type Connector struct {
	ID        uuid.UUID
	Name      string
	Platform  string   // connectorPlatform, or ""
	Address   string   // of its metadata document, or ""
	Redirects []string // where answers go
	Deleted   bool
	Attempts  []Attempt
}

// A Refusal is the last one that a grant's token request met.
type Refusal struct {
	At     time.Time
	Reason string
}

// OfGrant reads a walk off a grant: firstUsed is when it was first used to call, nil for never.
func OfGrant(g grant.Grant, firstUsed *time.Time, last *Refusal, now time.Time) Attempt {
	w := Attempt{ID: g.ID, At: g.Created}
	w.Taken = [...]bool{
		Requested: true,
		Consented: true,
		Exchanged: g.Generation > 0,
		Called:    firstUsed != nil,
		Refreshed: g.Generation > 1,
	}
	switch {
	case g.State == grant.Revoked:
		w.Outcome, w.Reason = Ended, g.Reason.Words(g.RevokedAt)
	case !now.Before(g.Ends):
		w.Outcome, w.Reason = Ended, "The time that the user consented to is over."
	case last != nil && (g.LastUsed == nil || last.At.After(*g.LastUsed)):
		w.Outcome, w.Reason = Refused, last.Reason
	case g.State == grant.Active:
		w.Outcome = Working
	case now.Sub(g.Created) > client.CodeLife:
		w.Outcome, w.Reason = Refused, "The user approved, but the application never exchanged the code."
	default:
		w.Outcome, w.Reason = Waiting, "The user approved; the application has a minute to exchange the code."
	}
	return w
}
