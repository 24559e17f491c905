// Package programmes serves the endpoints of the Programmes module.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call, and package
// programme what is valid. All paths are under /v1/programmes/programmes (spec 4.1; contract, section 6).
package programmes

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/programmes/programmes"

// What the routes require of their callers. A caller who may write may see the result, so reading an import requires
// the write permission only.
var (
	toRead  = gate.Need{Module: "programmes", Permission: perm.ProgrammesRead}
	toWrite = gate.Need{Module: "programmes", Permission: perm.ProgrammesWrite}
)

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
	imports    *slots // bounds the imports received at once
}

// New returns an Endpoint.
func New(d Deps) *Endpoint {
	return &Endpoint{
		collection: d.BaseURL + Path,
		gate:       d.Gate,
		store:      d.Store,
		cursors:    d.Cursors,
		imports:    newSlots(importsAtOnce, importsOfWorkspace, importPatience),
	}
}

// pathID reads the id of the path. A malformed id yields ErrNotFound, since it names no record.
func pathID(r *http.Request) (uuid.UUID, error) {
	id, err := identity.Parse(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, programme.ErrNotFound
	}
	return id, nil
}

// refusal maps errors of the domain to API errors; other errors pass unchanged.
func refusal(err error) error {
	if problems, ok := errors.AsType[programme.Problems](err); ok {
		return &apierr.Error{
			Kind:    apierr.Invalid,
			Message: "The request is not valid. error.fields says what to correct.",
			Fields:  problems,
		}
	}
	switch {
	case errors.Is(err, programme.ErrNotFound):
		return apierr.New(apierr.NotFound, "There is no such record in this workspace.")
	case errors.Is(err, programme.ErrTooExpensive):
		return apierr.New(
			apierr.TooExpensive,
			"This search takes too long. Search for a longer or less common text, or filter by status.",
		)
	case errors.Is(err, programme.ErrStale):
		return apierr.New(
			apierr.PreconditionFailed,
			"The programme has changed since you read it. Read it again and repeat your change.",
		)
	case errors.Is(err, programme.ErrTransition):
		return apierr.New(
			apierr.Conflict,
			"The programme cannot change from its current status to this status. Allowed transitions: draft to "+
				"active, active to completed, completed to archived, and draft to archived.",
		)
	case errors.Is(err, programme.ErrImportsWait):
		return &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: 10,
			Message: "Too many imports of this workspace are waiting. Send this import again after the time in " +
				"Retry-After.",
		}
	}
	return err
}
