// Package webhooks serves the events of a workspace, and the endpoints with which it manages its webhooks, under
// /v1/webhooks (contract, section 6a).
package webhooks

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/webhooks"

// Store stores endpoints. Its errors are those of package webhook, or *apierr.Error.
type Store interface {
	Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error)
	// Webhooks and Deliveries call take with each record of a page until it returns false.
	Webhooks(
		ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(webhook.Endpoint) bool,
	) (rest.End, error)
	Deliveries(
		ctx context.Context, workspaceID, endpoint uuid.UUID, r rest.Range, take func(webhook.Delivery) bool,
	) (rest.End, error)
	// Events passes up to limit events after a sequence, oldest first, to take until it returns false. It returns the
	// sequence after which more may follow, or 0.
	Events(
		ctx context.Context, workspaceID uuid.UUID, after int64, subjects []string, limit int,
		take func(delivery.Event) bool,
	) (next int64, err error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(ctx context.Context, key rest.Key, effect rest.Effect[delivery.Writer]) (rest.Answer, error)
}

// An Endpoint makes the handlers.
type Endpoint struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *rest.Cursors
	Network *publicnet.Network // in which endpoints are allowed
	Keys    *webhook.Keys
	Answers *seal.Box // seals stored answers that contain a secret
}

// Routes returns the handlers by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	one := Path + "/{id}"
	return map[string]map[string]http.Handler{
		"/v1/events": {"GET": e.events()},

		Path: {"GET": e.endpoints().List(), "POST": e.write(e.decodeCreate, e.onceSealed)},
		one: {
			"GET":    e.endpoints().One(),
			"PATCH":  e.write(e.decodeChange, e.Store.Once),
			"DELETE": e.write(gate.Deletes(webhook.ErrNotFound, delivery.Writer.Delete), e.Store.Once),
		},
		one + "/secret":     {"POST": e.write(e.decodeReplaceSecret, e.onceSealed)},
		one + "/test":       {"POST": e.write(decodeTest, e.Store.Once)},
		one + "/deliveries": {"GET": e.deliveries().List()},

		one + "/deliveries/{delivery}/resend": {"POST": e.write(decodeResend, e.Store.Once)},
	}
}

func (e *Endpoint) module() gate.Module {
	return gate.Module{Gate: e.Gate, Cursors: e.Cursors, Refusals: refusals}
}

// endpoints serves the workspace's endpoints.
func (e *Endpoint) endpoints() gate.Records[webhook.Endpoint, record] {
	return gate.Records[webhook.Endpoint, record]{
		Module:   e.module(),
		Need:     perm.AccountAPIAccess,
		Record:   recordOf,
		Name:     "webhooks",
		Page:     e.Store.Webhooks,
		Position: func(e webhook.Endpoint) rest.Position { return rest.Position{CreatedAt: e.CreatedAt, ID: e.ID} },
		NotFound: webhook.ErrNotFound,
		Read:     e.Store.Webhook,
	}
}

// deliveries serves the log of one endpoint.
func (e *Endpoint) deliveries() gate.Records[webhook.Delivery, deliveryRecord] {
	return gate.Records[webhook.Delivery, deliveryRecord]{
		Module:    e.module(),
		Need:      perm.AccountAPIAccess,
		RecordFor: deliveryRecordOf,
		Name:      "webhook deliveries",
		Owner:     webhook.ErrNotFound,
		// The endpoint belongs to the caller's workspace, so its deliveries do too.
		Find: func(ctx context.Context, workspaceID, id uuid.UUID) error {
			_, err := e.Store.Webhook(ctx, workspaceID, id)
			return err
		},
		PageOf:   e.Store.Deliveries,
		Position: func(d webhook.Delivery) rest.Position { return rest.Position{CreatedAt: d.CreatedAt, ID: d.ID} },
	}
}

// record is an endpoint as returned to the workspace.
type record struct {
	ID             uuid.UUID       `json:"id"`
	URL            string          `json:"url"`
	Types          []string        `json:"types"`
	AllTypes       bool            `json:"allTypes"`
	PersonalData   bool            `json:"includePersonalData"`
	Enabled        bool            `json:"enabled"`
	DisabledReason *webhook.Reason `json:"disabledReason"`
	FailingSince   *rest.Time      `json:"failingSince"`
	CreatedAt      rest.Time       `json:"createdAt"`
}

func recordOf(e webhook.Endpoint) record {
	r := record{
		ID:           e.ID,
		URL:          e.URL,
		Types:        e.Wanted(),
		AllTypes:     e.AllTypes,
		PersonalData: e.PersonalData,
		Enabled:      e.Enabled,
		FailingSince: rest.TimePointer(e.FailingSince),
		CreatedAt:    rest.Time(e.CreatedAt),
	}
	if !e.Enabled {
		r.DisabledReason = &e.Reason
	}
	return r
}

// deliveryRecord is a delivery as returned to the workspace.
type deliveryRecord struct {
	ID        uuid.UUID     `json:"id"`
	WebhookID string        `json:"webhookId"`
	Cause     webhook.Cause `json:"cause"`
	Type      string        `json:"type"`
	Sequence  *int64        `json:"sequence"`
	State     string        `json:"state"`
	Status    *int          `json:"status"`
	Problem   *string       `json:"problem"`
	CreatedAt rest.Time     `json:"createdAt"`
	TriedAt   *rest.Time    `json:"triedAt"`
	Duration  *int64        `json:"durationMs"`
	Response  *string       `json:"response"`
}

// deliveryRecordOf returns a delivery as the caller sees it. The response, which may repeat the request, is only for
// those who may read the event.
func deliveryRecordOf(caller gate.Caller, d webhook.Delivery) deliveryRecord {
	r := deliveryRecord{
		ID:        d.ID,
		WebhookID: d.MessageID(caller.WorkspaceID),
		Cause:     d.Cause,
		Type:      d.Type,
		Sequence:  d.Sequence,
		State:     "failed",
		Status:    d.Status,
		CreatedAt: rest.Time(d.CreatedAt),
		TriedAt:   rest.TimePointer(d.TriedAt),
	}
	switch {
	case d.TriedAt == nil:
		r.State = "waiting"
	case d.Accepted():
		r.State = "accepted"
	default:
		r.Problem = &d.Problem
	}
	if d.TriedAt != nil {
		took := d.Took.Milliseconds()
		r.Duration = &took
	}
	if d.Response != nil && d.ReadableWith(caller.Permissions) {
		text, _ := webhook.Text(d.Response)
		r.Response = &text
	}
	return r
}

var refusals = rest.Refusals{
	{Err: webhook.ErrNotFound, As: apierr.New(apierr.NotFound,
		"There is no such webhook endpoint or delivery in this workspace.")},
	{Err: webhook.ErrTooMany, As: apierr.New(apierr.Conflict,
		"This workspace has 20 webhook endpoints, which is the maximum. Delete one first.")},
	{Err: webhook.ErrDisabled, As: apierr.New(apierr.Conflict, "This webhook endpoint is disabled. Enable it first.")},
	{Err: webhook.ErrWaiting, As: apierr.New(apierr.Conflict,
		"10 requested deliveries to this webhook endpoint are still waiting. Try again in a minute.")},
	{Err: webhook.ErrTests, As: &apierr.Error{
		Kind:       apierr.RateLimited,
		Message:    "60 test events were sent to this webhook endpoint within an hour. Try again later.",
		RetryAfter: 600,
	}},
}

// events handles GET /v1/events: what changed in the workspace within the last 30 days (contract, section 6a). It needs
// membership alone: the response leaves out the events that the caller may not read.
func (e *Endpoint) events() http.Handler {
	return e.Gate.Guard("", func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		wanted, after, err := readEventRange(r.URL.RawQuery, "events "+workspaceID.String(), e.Cursors)
		if err != nil {
			return gate.Plan{}, rest.Refusals(nil).Of(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			read := func(page *rest.Page[delivery.Event]) (next string, err error) {
				subjects := webhook.ReadableSubjects(caller.Permissions)
				resume, err := e.Store.Events(r.Context(), caller.WorkspaceID, after, subjects, wanted.Limit, page.Take)
				if err == nil && resume > 0 { // the list is ordered by sequence
					next = e.Cursors.SealPosition(wanted.List, rest.Position{CreatedAt: time.UnixMicro(resume)})
				}
				return next, err
			}
			return gate.WritePage(w, r, caller, gate.Itself[delivery.Event], wanted.Fields, read)
		}}, nil
	})
}

// readEventRange reads the query parameters after, limit, cursor and fields. A cursor continues behind the
// event that it names, and never at or before after.
func readEventRange(raw, name string, cursors *rest.Cursors) (wanted rest.Range, after int64, err error) {
	wanted, err = rest.ReadRange(raw, name, cursors, rest.FieldsOf[delivery.Event](), rest.Filters{}, "after")
	if err != nil {
		return rest.Range{}, 0, err
	}
	p := rest.ReadParameters(raw, "after")
	if text, given := p.Text("after"); given {
		after, err = strconv.ParseInt(text, 10, 64)
		if err != nil || after < 0 || text[0] == '+' || text[0] == '-' {
			p.Problems["after"] = "Must be the sequence of an event, or 0."
		}
	}
	if wanted.After != nil {
		after = max(after, wanted.After.CreatedAt.UnixMicro())
	}
	return wanted, after, p.Problems.OrNil()
}
