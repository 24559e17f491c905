// Package webhooks serves the endpoints with which a workspace manages its webhooks, under /v1/webhooks (contract,
// section 6a).
//
//	endpoint.go    paths, dependencies, refusals
//	read.go        lists and single records
//	write.go       adding, changing and deleting endpoints
//	secret.go      replacing a secret
//	deliveries.go  the log, tests and repeated deliveries
package webhooks

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/publicnet"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/webhooks"

// Store stores endpoints. Its errors are those of package webhook, or *apierr.Error.
type Store interface {
	Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error)
	// Webhooks and Deliveries call take with each record of a page until it returns false.
	Webhooks(
		ctx context.Context,
		workspaceID uuid.UUID,
		r list.Range,
		take func(webhook.Endpoint) bool,
	) (list.End, error)
	Deliveries(
		ctx context.Context,
		workspaceID, endpoint uuid.UUID,
		r list.Range,
		take func(webhook.Delivery) bool,
	) (list.End, error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context, delivery.Writer) (idempotency.Answer, error),
	) (idempotency.Answer, error)
}

// Deps are the dependencies of an Endpoint.
type Deps struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *list.Cursors
	Network *publicnet.Network // in which endpoints are allowed
	Keys    *webhook.Keys
	Answers *seal.Box // seals stored answers that contain a secret
}

// NewAnswers returns a Box that seals stored answers.
func NewAnswers(keys seal.Keys) (*seal.Box, error) { return seal.NewBox(keys, "webhook answer") }

// An Endpoint makes the handlers.
type Endpoint struct{ Deps }

// New returns an Endpoint.
func New(d Deps) *Endpoint { return &Endpoint{d} }

// Routes returns the handlers by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	one := Path + "/{id}"
	return map[string]map[string]http.Handler{
		Path:                {"GET": e.List(), "POST": e.Create()},
		one:                 {"GET": e.Read(), "PATCH": e.Change(), "DELETE": e.Delete()},
		one + "/secret":     {"POST": e.ReplaceSecret()},
		one + "/test":       {"POST": e.Test()},
		one + "/deliveries": {"GET": e.Deliveries()},

		one + "/deliveries/{delivery}/resend": {"POST": e.Resend()},
	}
}

var refusals = records.Refusals{
	{
		Err: webhook.ErrNotFound,
		As:  apierr.New(apierr.NotFound, "There is no such webhook endpoint or delivery in this workspace."),
	},
	{
		Err: webhook.ErrTooMany,
		As: apierr.New(
			apierr.Conflict,
			"This workspace has 20 webhook endpoints, which is the maximum. Delete one first.",
		),
	},
	{
		Err: webhook.ErrDisabled,
		As:  apierr.New(apierr.Conflict, "This webhook endpoint is disabled. Enable it first."),
	},
	{
		Err: webhook.ErrWaiting,
		As: apierr.New(
			apierr.Conflict,
			"10 requested deliveries to this webhook endpoint are still waiting. Try again in a minute.",
		),
	},
	{
		Err: webhook.ErrTests,
		As: &apierr.Error{
			Kind:       apierr.RateLimited,
			Message:    "60 test events were sent to this webhook endpoint within an hour. Try again later.",
			RetryAfter: 600,
		},
	},
}
