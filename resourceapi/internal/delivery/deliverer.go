// Package delivery sends the events of a workspace to its webhook endpoints (contract, section 6a).
//
// Package worker calls the Deliverer for each endpoint that has pending deliveries. Its invariants:
//
//	W1 Events are sent in the order of their sequence. An event is sent after the previous one was accepted.
//	W2 An event is sent at least once, with the same webhook-id each time, even if a process crashes.
//	W3 An event is sent only if the endpoint's user may read it at that moment. If the user loses account:api:access,
//	   the endpoint is disabled.
//	W4 Only public addresses are dialled, and redirects are not followed (shared/net/publicnet).
//	W5 An endpoint is disabled if it accepts no event for three days, and immediately if it answers 410.
//	W6 The receiver's Retry-After delays the next attempt by up to six hours.
//	W7 No log, error or record of a delivery contains a secret or a URL. The record alone has the beginning of the
//	   body of the response.
//	W8 Personal data is sent only if the endpoint's user asked for it on its page and may read it at that moment. It
//	   is read for each attempt and never stored with the delivery. No response of such an endpoint is, which may
//	   repeat what was sent before.
//	W9 An endpoint that a personal access token or an access token added gets what that credential may read at that
//	   moment, and is disabled once it has ended: revoked, replaced or expired.
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/rest"
)

const (
	// Turn is how long one call of Deliver starts new deliveries.
	Turn = 5 * time.Second
	// DisableAfter is how long an endpoint may accept no event (W5).
	DisableAfter = 72 * time.Hour
	// Lateness is a limit: an event written up to Lateness before an endpoint was added may be sent to it, because the
	// event's transaction may have ended afterwards.
	Lateness = 10 * time.Minute

	firstWait   = 5 * time.Second
	longestWait = 6 * time.Hour

	// A connection to a receiver is used again for keepAlive: a TLS handshake costs more than all else of a delivery.
	// Its address was public when it was dialled (W4). A receiver that serves one connection at a time waits that long.
	keepAlive      = 2 * time.Second
	maxIdle        = 256
	maxIdlePerHost = 32
)

// An Event says that a record changed. It contains no values.
//
// The database writes an event in the transaction of its change. It assigns sequences when events are read, a
// bounded number at a time, so that no event appears later with a lower one. Package worker assigns the rest. Package
// endpoint/webhooks serves the events, and this package sends them to webhook endpoints.
type Event struct {
	Sequence int64           `json:"sequence"`
	Type     string          `json:"type"` // a subject and what happened to it, such as programme.created
	At       rest.Time       `json:"timestamp"`
	Data     json.RawMessage `json:"data"` // the id and, of an update, the names of the changed fields
}

// A Writer changes the endpoints of a workspace within one transaction, and records the audit events. It returns the
// errors of package webhook.
type Writer interface {
	Add(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed) (webhook.Endpoint, error)
	Delete(ctx context.Context, workspaceID, id, by uuid.UUID) error
	// Enable enables an endpoint, which then gets the events that it missed and that by may read, without personal data
	// if another user asked for it.
	Enable(ctx context.Context, workspaceID, id uuid.UUID, by webhook.Maker) (webhook.Endpoint, error)
	Disable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	// OmitPersonalData omits the personal data of events. Only the page includes it.
	OmitPersonalData(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	// ReplaceSecret replaces the secret of an endpoint. For overlap, events are also signed with the previous secret.
	ReplaceSecret(
		ctx context.Context, workspaceID, id, by uuid.UUID, secret webhook.Sealed, overlap time.Duration,
	) (webhook.Endpoint, error)
	// Test queues a test event. Resend queues the event of an earlier delivery; need checks the type of the event.
	Test(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Delivery, error)
	Resend(
		ctx context.Context, workspaceID, id, former uuid.UUID, need func(eventType string) error,
	) (webhook.Delivery, error)
}

// A Target is an endpoint with the data for its next delivery.
type Target struct {
	webhook.Endpoint
	Secret      webhook.Sealed
	Former      webhook.Sealed // the previous secret; its Secret is empty if it has ended
	Failures    int            // failed attempts since the last success
	Ready       bool           // the wait after the last failure is over
	Requested   bool           // a delivery that a user requested is pending
	Permissions perm.Set       // of the user in the workspace; none if the user is no member
}

// Events reads the events of workspaces.
type Events interface {
	// Event returns an event of the workspace, or nil if it is no longer stored.
	Event(ctx context.Context, workspaceID uuid.UUID, sequence int64) (*Event, error)
	// Next returns the next events of the types after the position of t. more is whether others follow. If not, there
	// is no other event of the types up to the sequence end.
	Next(ctx context.Context, t Target, types []string) (some []Event, end int64, more bool, err error)
	// PersonalData returns the current personal data of an event of the workspace. It does not check permissions.
	PersonalData(ctx context.Context, workspaceID uuid.UUID, e Event) (PersonalData, error)
}

// Store keeps the state of deliveries. Each change of a Target has no effect if its position has changed. Statements
// about several endpoints share a transaction.
type Store interface {
	// Target returns webhook.ErrNotFound for an endpoint that was deleted.
	Target(ctx context.Context, workspaceID, id uuid.UUID) (Target, error)
	// Requested returns the oldest pending delivery of an endpoint that a user requested, or nil.
	Requested(ctx context.Context, workspaceID, id uuid.UUID) (*webhook.Delivery, error)
	// Finish records the result of a delivery that a user requested.
	Finish(ctx context.Context, t Target, id uuid.UUID, a Attempt) error
	// Accept moves the position to the event, and returns the Target for the next one.
	Accept(ctx context.Context, t Target, e Event, a Attempt) (Target, error)
	// Skip moves the position to a sequence without a delivery.
	Skip(ctx context.Context, t Target, sequence int64) error
	// Retry makes the endpoint wait before the event is sent again.
	Retry(ctx context.Context, t Target, e Event, a Attempt, wait time.Duration) error
	// Disable disables the endpoint and records the attempt that caused it, if not nil. If mail is true, its user gets
	// a mail.
	Disable(ctx context.Context, t Target, reason webhook.Reason, e Event, a *Attempt, mail bool) error
}

// A Claim is an endpoint that one worker may send to until a time. Failing: its last attempt failed or was slow.
type Claim struct {
	ID, WorkspaceID uuid.UUID
	Failing         bool
	Until           time.Time
}

// Deps are the dependencies of a Deliverer.
type Deps struct {
	Store   Store
	Events  Events
	Network *publicnet.Network
	Keys    *webhook.Keys
	Count   func(Outcome, time.Duration)
	Now     func() time.Time
}

// A Deliverer sends events to endpoints. It is safe for concurrent use.
type Deliverer struct {
	Deps
	client *http.Client
}

// New returns a Deliverer.
func New(d Deps) *Deliverer {
	transport := d.Network.Transport()
	transport.DisableKeepAlives, transport.IdleConnTimeout = false, keepAlive
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = maxIdle, maxIdlePerHost
	return &Deliverer{d, &http.Client{
		Timeout:       Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}}
}

// Deliver sends to one endpoint until nothing is pending, a delivery fails, or 5 seconds have passed. It returns an
// error of the store or of ctx. A failed delivery is not an error.
func (d *Deliverer) Deliver(ctx context.Context, workspaceID, id uuid.UUID) error {
	r := run{d, workspaceID, id, d.Now().Add(Turn), map[string]credential.Secret{}}
	for r.Now().Before(r.end) && ctx.Err() == nil {
		more, err := r.deliverSome(ctx)
		if errors.Is(err, webhook.ErrNotFound) {
			return nil // deleted meanwhile
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// A run is one call of Deliver.
type run struct {
	*Deliverer
	workspaceID, id uuid.UUID
	end             time.Time                    // no delivery starts after it
	opened          map[string]credential.Secret // by the sealed secret: opening one takes as long as a delivery
}

// deliverSome makes a requested delivery, or delivers some events. It reports whether more may be pending. It reads the
// endpoint again after it has selected an event, so that the current settings and permissions decide whether the event
// is sent (W3).
func (r run) deliverSome(ctx context.Context) (more bool, err error) {
	t, err := r.Store.Target(ctx, r.workspaceID, r.id)
	switch {
	case err != nil:
		return false, err
	case t.Requested:
		return true, r.deliverRequested(ctx)
	case !t.Enabled || !t.Ready:
		return false, nil
	case !t.Permissions.Has(perm.AccountAPIAccess):
		return false, r.Store.Disable(ctx, t, webhook.NoRight, Event{}, nil, false)
	}
	some, last, more, err := r.Events.Next(ctx, t, webhook.Readable(t.Wanted(), t.Permissions))
	if err == nil && len(some) > 0 {
		position := t.Position
		if t, err = r.Store.Target(ctx, r.workspaceID, r.id); err == nil && t.Position != position {
			return true, nil // another process has sent the events
		}
	}
	for _, e := range some {
		if err != nil || !t.accepts(e) || t.Requested || r.Now().After(r.end) {
			return true, err // the endpoint has changed since the event was selected, or others wait
		}
		var accepted bool
		if t, accepted, err = r.deliverEvent(ctx, t, e); !accepted || err != nil {
			return false, err
		}
		if t.Position != e.Sequence {
			return true, nil
		}
	}
	if err != nil || more || last <= t.Position {
		return more, err
	}
	return true, r.Store.Skip(ctx, t, last) // it has examined a bounded number of events
}

// accepts reports whether the event may be sent to the endpoint now, and its user may read it.
func (t Target) accepts(e Event) bool {
	return t.Enabled && t.Ready && t.Permissions.Has(perm.AccountAPIAccess) &&
		slices.Contains(webhook.Readable(t.Wanted(), t.Permissions), e.Type)
}

// deliverEvent sends the next event of an endpoint. It returns the endpoint for the one after it, if it was accepted.
func (r run) deliverEvent(ctx context.Context, t Target, e Event) (next Target, accepted bool, err error) {
	m, err := r.eventMessage(ctx, t, e)
	if err != nil {
		return t, false, err
	}
	a, err := r.send(ctx, t, m)
	switch {
	case err != nil:
	case a.Outcome == Accepted:
		next, err = r.Store.Accept(ctx, t, e, a)
		return next, true, err
	case a.Status == http.StatusGone:
		err = r.Store.Disable(ctx, t, webhook.Gone, e, &a, true)
	case t.FailingSince != nil && r.Now().Sub(*t.FailingSince) >= DisableAfter:
		err = r.Store.Disable(ctx, t, webhook.Failing, e, &a, true)
	default:
		err = r.Store.Retry(ctx, t, e, a, max(waitAfter(t.Failures), a.RetryAfter))
	}
	return t, false, err
}

// deliverRequested makes one attempt to send a test event or to resend an event. A 410 does not disable the endpoint.
func (r run) deliverRequested(ctx context.Context) error {
	requested, err := r.Store.Requested(ctx, r.workspaceID, r.id)
	if err != nil || requested == nil {
		return err
	}
	var e *Event
	if requested.Sequence != nil {
		if e, err = r.Events.Event(ctx, r.workspaceID, *requested.Sequence); err != nil {
			return err
		}
	}
	t, err := r.Store.Target(ctx, r.workspaceID, r.id) // after the event, as in deliverSome
	if err != nil {
		return err
	}
	m, problem, err := r.requestedMessage(ctx, t, *requested, e)
	if err != nil {
		return err
	}
	if problem != "" {
		return r.Store.Finish(ctx, t, requested.ID, Attempt{Problem: problem})
	}
	a, err := r.send(ctx, t, m)
	if err != nil {
		return err
	}
	return r.Store.Finish(ctx, t, requested.ID, a)
}

// requestedMessage returns the message of a requested delivery, or the reason why there is none. e is nil if its event
// is no longer stored.
func (d *Deliverer) requestedMessage(
	ctx context.Context, t Target, requested webhook.Delivery, e *Event,
) (m message, problem string, err error) {
	if requested.Sequence == nil {
		m.id = requested.MessageID(t.WorkspaceID)
		m.body, err = webhook.TestEvent(t.ID, requested.CreatedAt).Body(t.WorkspaceID)
		return m, "", err
	}
	if !t.Permissions.Has(perm.AccountAPIAccess) ||
		len(webhook.Readable([]string{requested.Type}, t.Permissions)) == 0 {
		return message{}, "The user of the endpoint may not read this event any more.", nil
	}
	if e == nil {
		return message{}, "The event is older than 30 days and no longer stored.", nil
	}
	m, err = d.eventMessage(ctx, t, *e)
	return m, "", err
}

// eventMessage returns the message of an event, with personal data if the user of the endpoint asked for it (W8). The
// caller has checked that the user may read the event.
func (d *Deliverer) eventMessage(ctx context.Context, t Target, e Event) (m message, err error) {
	if t.PersonalData {
		personal, err := d.Events.PersonalData(ctx, t.WorkspaceID, e)
		if m.personal = personal != (PersonalData{}); err == nil && m.personal {
			e.Data, err = personal.addTo(e.Data)
		}
		if err != nil {
			return message{}, err
		}
	}
	m.id = webhook.EventID(t.WorkspaceID, e.Sequence)
	sent := webhook.Event{Type: e.Type, At: time.Time(e.At), Data: e.Data, Sequence: e.Sequence}
	m.body, err = sent.Body(t.WorkspaceID)
	return m, err
}

func (r run) send(ctx context.Context, t Target, m message) (Attempt, error) {
	secret, err := r.open(t.Secret)
	if err != nil { // app logs this when it reseals the secrets
		return Attempt{
			Problem: "The secret of the endpoint can no longer be read. Delete the endpoint and add it again.",
			Outcome: Unreachable,
		}, nil
	}
	secrets := []credential.Secret{secret}
	if t.Former.Secret != nil {
		if former, err := r.open(t.Former); err == nil { // it ends within a day, and is not resealed
			secrets = append(secrets, former)
		}
	}
	m.private = t.PersonalData
	a, err := r.post(ctx, t.URL, secrets, m)
	if err != nil {
		return Attempt{}, fmt.Errorf("webhook endpoint %s: %w", t.ID, err)
	}
	r.Count(a.Outcome, a.Took)
	return a, nil
}

// open opens a secret of the endpoint.
func (r run) open(sealed webhook.Sealed) (secret credential.Secret, err error) {
	name := string(sealed.Secret)
	if secret = r.opened[name]; secret == "" {
		if secret, err = r.Keys.Open(r.id, sealed); err == nil {
			r.opened[name] = secret
		}
	}
	return secret, err
}

// waitAfter returns the time until the next attempt, after a number of failures before the latest one. It grows by a
// factor of four, from 5 seconds to 6 hours, with a random difference of up to a tenth, so that the endpoints of one
// host are not all called at the same time.
func waitAfter(failures int) time.Duration {
	wait := min(firstWait<<(2*min(failures, 8)), longestWait)
	return wait - wait/10 + rand.N(wait/5)
}
