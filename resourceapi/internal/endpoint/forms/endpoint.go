// Package forms serves the endpoints with which a workspace manages its public forms.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call. All paths are
// under /v1/engage/forms (contract, section 6).
package forms

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// Paths of the collections, below the base address.
const (
	Path            = "/v1/engage/forms"
	SubmissionsPath = "/v1/engage/submissions"
	SupportersPath  = "/v1/engage/supporters"
	ErasuresPath    = "/v1/engage/erasures"
)

// Store stores forms. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error)
	// Forms and Submissions pass the records of a page to take until it returns false.
	Forms(ctx context.Context, workspaceID uuid.UUID, r list.Range, take func(engage.Form) bool) (list.End, error)
	Submissions(
		ctx context.Context,
		workspaceID, form uuid.UUID,
		r list.Range,
		take func(engage.Submission) bool,
	) (list.End, error)
	Submission(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error)
	Supporters(
		ctx context.Context,
		workspaceID uuid.UUID,
		r list.Range,
		take func(engage.StoredSupporter) bool,
	) (list.End, error)
	Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error)
	// Erasure reads an erasure that a worker does.
	Erasure(ctx context.Context, workspaceID, id uuid.UUID) (engage.Erasure, error)
	// RecordExport records in the audit log that the user by exports the submissions of a form.
	RecordExport(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context, engage.Writer) (idempotency.Answer, error),
	) (idempotency.Answer, error)
}

// Deps are the dependencies of an Endpoint.
type Deps struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *list.Cursors
}

// An Endpoint makes the handlers.
type Endpoint struct {
	collection string // absolute URL of the collection
	erasures   string // absolute URL of the erasures
	gate       *gate.Gate
	store      Store
	cursors    *list.Cursors
}

// New returns an Endpoint.
func New(d Deps) *Endpoint {
	return &Endpoint{d.BaseURL + Path, d.BaseURL + ErasuresPath, d.Gate, d.Store, d.Cursors}
}

// Routes returns the handlers of the module by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		Path:                       {"GET": e.List(), "POST": e.Create()},
		Path + "/{id}":             {"GET": e.Read(), "PATCH": e.Change(), "DELETE": e.Delete()},
		Path + "/{id}/submissions": {"GET": e.Submissions()},

		Path + "/{id}/submissions/export": {"GET": e.Export()},

		SubmissionsPath + "/{id}": {"GET": e.ReadSubmission(), "DELETE": e.DeleteSubmission()},
		SupportersPath:            {"GET": e.Supporters()},
		SupportersPath + "/{id}":  {"GET": e.ReadSupporter(), "DELETE": e.DeleteSupporter()},
		SupportersPath + "/erase": {"POST": e.Erase()},
		ErasuresPath + "/{id}":    {"GET": e.ReadErasure()},
	}
}

var refusals = records.Refusals{
	{Err: engage.ErrNotFound, As: apierr.New(apierr.NotFound, "There is no such form in this workspace.")},
	{
		Err: engage.ErrNoSubmission,
		As:  apierr.New(apierr.NotFound, "There is no such submission in this workspace."),
	},
	{
		Err: engage.ErrNoSupporter,
		As:  apierr.New(apierr.NotFound, "There is no such supporter in this workspace."),
	},
	{
		Err: engage.ErrNoErasure,
		As:  apierr.New(apierr.NotFound, "There is no such erasure in this workspace."),
	},
	{
		Err: engage.ErrTooManyErasures,
		As: &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: 10,
			Message: "Too many erasures of this workspace are not finished. Send this one again after the time in " +
				"Retry-After.",
		},
	},
	{
		Err: precondition.ErrStale,
		As: apierr.New(
			apierr.PreconditionFailed,
			"The form has changed since you read it. Read it again and repeat your change.",
		),
	},
}
