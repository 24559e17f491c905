// Package connectionlog records how far a connector's attempts to connect to a workspace got, and why they failed.
//
// An Attempt is one attempt: the authorization request, the user's approval, the exchange of the code, the first call
// and the first refresh. If there is a grant, the attempt is read from the grant and its events, and nothing is stored
// twice. An attempt that ended before that is a StoppedAttempt, which endpoint/protocol/authorize and
// engine record. Neither contains a code, token or other secret.
//
// Callers: endpoint/protocol/authorize and engine (record), store/postgres (store and read), endpoint/settings (show).
package connectionlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/net/web"
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
	ID      uuid.UUID
	At      time.Time // when it began; for a StoppedAttempt, when it was last recorded
	Person  string    // name of the user; "" if no user was signed in
	Email   string
	Taken   [Refreshed + 1]bool // the steps that were reached
	Orphan  bool                // a token request that belongs to no known approval; it reached no step
	Outcome Outcome
	Live    bool   // its grant is active and has not expired
	Reason  string // as it was recorded, or "": words for people or, of a refused request, of the protocol (Words)

	shown     string // the reason in fewer words, or ""
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
}

// A Found is an attempt that a search found, with its connector.
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
		a.Outcome, a.Reason = Ended, g.Reason.Explain(application, g.RevokedAt, g.Reuse)
		a.shown = g.Reason.Ended(application, nil)
		if g.Reuse != nil {
			a.Reason += " To use it again, the person connects it again, with the same choices."
		}
	case !now.Before(g.Ends):
		a.Outcome, a.Reason = Ended, "The access that the person approved has expired."
	case last != nil && (g.LastUsed == nil || last.At.After(*g.LastUsed)):
		a.Outcome, a.Reason = Refused, last.Reason
	case g.State == grant.Active:
		a.Outcome = Working
	case now.Sub(g.Created) > client.CodeLife:
		a.Outcome, a.Reason = Refused, neverFinished
	default:
		a.Outcome, a.Reason = Waiting, finishes
	}
	return a
}

// A StoppedAttempt is an attempt that ended before there was a grant. A consent page that waits for the user's decision
// is one until the user decides.
type StoppedAttempt struct {
	WorkspaceID uuid.UUID
	ClientID    uuid.UUID
	UserID      *uuid.UUID // nil if no user was signed in or the user is unknown
	Orphan      bool       // a token request that belongs to no known approval; otherwise an authorization request
	Outcome     Outcome    // Waiting, Refused or Denied
	Reason      string     // in plain words, one of a few
	RequestID   string
}

// StoppedAttempts stores stopped attempts. Its errors wrap store.ErrUnavailable.
type StoppedAttempts interface {
	RecordStopped(ctx context.Context, s StoppedAttempt) error
}

// repeatAfter limits how often the same stopped attempt is written. maxRemembered limits how many different ones are
// remembered. Anything beyond costs no write, so a flood cannot fill the table.
const (
	repeatAfter   = time.Minute
	maxRemembered = 4096
)

type attemptKey struct {
	workspaceID, client, user uuid.UUID
	orphan                    bool
	reason                    string
}

func (s StoppedAttempt) key() attemptKey {
	key := attemptKey{client: s.ClientID, orphan: s.Orphan, reason: s.Reason}
	if !s.Orphan { // an orphan's client determines the workspace, which is set between Recorded and Write
		key.workspaceID = s.WorkspaceID
	}
	if s.UserID != nil {
		key.user = *s.UserID
	}
	return key
}

// A Recorder records stopped attempts and limits repetitions. It is safe for concurrent use.
type Recorder struct {
	stops StoppedAttempts
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	last map[attemptKey]time.Time
}

// NewRecorder returns a Recorder.
func NewRecorder(stops StoppedAttempts, now func() time.Time, log *slog.Logger) *Recorder {
	return &Recorder{stops: stops, now: now, log: log, last: map[attemptKey]time.Time{}}
}

// Record records a stopped attempt of a workspace. A failed write does not affect the request.
func (r *Recorder) Record(ctx context.Context, s StoppedAttempt) {
	if err := r.Write(ctx, s); err != nil {
		r.log.WarnContext(ctx, "stopped authorization not recorded", "error", err)
	}
}

// Write is Record for callers that log the error. It writes the attempt with the id of the request, unless the same was
// written within the last minute or too many are remembered. After an error, the same attempt is new again.
func (r *Recorder) Write(ctx context.Context, s StoppedAttempt) error {
	if s.WorkspaceID == uuid.Nil || !r.isNew(s) {
		return nil
	}
	s.RequestID = web.RequestID(ctx)
	err := r.stops.RecordStopped(context.WithoutCancel(ctx), s)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.last, s.key())
	}
	return err
}

// Recorded reports whether the same attempt was written within the last minute.
func (r *Recorder) Recorded(s StoppedAttempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded(s.key(), r.now())
}

func (r *Recorder) recorded(key attemptKey, now time.Time) bool {
	at, seen := r.last[key]
	return seen && now.Sub(at) < repeatAfter
}

// isNew reports whether the attempt should be written, and remembers it.
func (r *Recorder) isNew(s StoppedAttempt) bool {
	key, now := s.key(), r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded(key, now) {
		return false
	}
	if len(r.last) >= maxRemembered {
		for other, at := range r.last {
			if now.Sub(at) >= repeatAfter {
				delete(r.last, other)
			}
		}
		if len(r.last) >= maxRemembered {
			return false
		}
	}
	r.last[key] = now
	return true
}
