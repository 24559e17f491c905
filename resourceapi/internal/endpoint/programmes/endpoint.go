// Package programmes serves the endpoints of the Programmes module.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call, and package
// programme what is valid. All paths are under /v1/programmes/programmes (spec 4.1; contract, section 6).
package programmes

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/programmes/programmes"

// Store stores programmes. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	StandingAndPage(
		ctx context.Context,
		q standing.Query,
		query programme.Query,
	) (standing.Standing, programme.Page, error)
	Page(ctx context.Context, query programme.Query) (programme.Page, error)
	StandingAndProgramme(
		ctx context.Context,
		q standing.Query,
		workspaceID, id uuid.UUID,
	) (standing.Standing, *programme.Programme, error)
	Import(ctx context.Context, workspaceID, id uuid.UUID) (programme.Import, error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context, programme.Writer) (idempotency.Answer, error),
	) (idempotency.Answer, error)
}

// Deps are the dependencies of an Endpoint.
type Deps struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *programme.Cursors
}

// An Endpoint makes the handlers of the module.
type Endpoint struct {
	collection string // absolute URL of the collection
	gate       *gate.Gate
	store      Store
	cursors    *programme.Cursors
	imports    slots // bounds the imports received at once
}

// New returns an Endpoint.
func New(d Deps) *Endpoint {
	return &Endpoint{
		collection: d.BaseURL + Path,
		gate:       d.Gate,
		store:      d.Store,
		cursors:    d.Cursors,
		imports:    newSlots(importsAtOnce, importsOfWorkspace, importWait),
	}
}

// Routes returns the handlers of the module by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		Path:                       {"GET": e.List(), "POST": e.Create()},
		Path + "/imports":          {"POST": e.Import()},
		Path + "/imports/{id}":     {"GET": e.ReadImport()},
		Path + "/{id}":             {"GET": e.Read(), "PATCH": e.Change(), "DELETE": e.Delete()},
		Path + "/{id}/transitions": {"POST": e.Move()},
		Path + "/transitions":      {"POST": e.MoveAll()},
		Path + "/batch":            {"POST": e.Batch()},
		// The external id is one segment, with each slash in it as %2F.
		Path + "/external/{externalId}": {"PUT": e.Put()},
	}
}

var refusals = records.Refusals{
	{Err: programme.ErrNotFound, As: apierr.New(apierr.NotFound, "There is no such record in this workspace.")},
	{
		Err: programme.ErrTooExpensive,
		As: apierr.New(
			apierr.TooExpensive,
			"This search takes too long. Search for a longer or less common text, or filter by status.",
		),
	},
	{
		Err: precondition.ErrStale,
		As: apierr.New(
			apierr.PreconditionFailed,
			"The programme has changed since you read it. Read it again and repeat your change.",
		),
	},
	{
		Err: programme.ErrTransition,
		As: apierr.New(
			apierr.Conflict,
			"The programme cannot change from its current status to this status. Allowed transitions: draft to "+
				"active, active to completed, completed to archived, and draft to archived.",
		),
	},
	{
		Err: programme.ErrNoDraft,
		As:  apierr.New(apierr.Conflict, "Only a draft can be deleted. Archive the programme instead."),
	},
	{
		Err: programme.ErrExternalID,
		As:  apierr.New(apierr.Conflict, "Another programme of this workspace has this externalId."),
	},
	{
		Err: programme.ErrImportsWait,
		As: &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: 10,
			Message: "Too many imports of this workspace are waiting. Send this import again after the time in " +
				"Retry-After.",
		},
	},
}
