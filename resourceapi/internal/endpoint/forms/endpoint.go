// Package forms serves the endpoints with which a workspace manages its public forms.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call. All paths are
// under /v1/engage/forms (contract, section 6).
package forms

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
)

// Path is the path of the collection, below the base address.
const Path = "/v1/engage/forms"

// What the routes require of their callers.
var (
	toRead            = gate.Need{Module: "engage", Permission: perm.EngageReadForms}
	toWrite           = gate.Need{Module: "engage", Permission: perm.EngageWriteForms}
	toReadSubmissions = gate.Need{Module: "engage", Permission: perm.EngageReadSubmissions}
)

// Store stores forms. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error)
	// Forms and Submissions pass the records of a page to take until it returns false.
	Forms(
		ctx context.Context,
		workspaceID uuid.UUID,
		r engage.Range,
		take func(engage.Form) bool,
	) (more bool, err error)
	Submissions(
		ctx context.Context,
		form uuid.UUID,
		r engage.Range,
		take func(engage.Submission) bool,
	) (engage.SubmissionPage, error)
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
	Cursors *engage.Cursors
}

// An Endpoint makes the handlers.
type Endpoint struct {
	collection string // absolute URL of the collection
	gate       *gate.Gate
	store      Store
	cursors    *engage.Cursors
}

// New returns an Endpoint.
func New(d Deps) *Endpoint { return &Endpoint{d.BaseURL + Path, d.Gate, d.Store, d.Cursors} }

// pathID reads the id of the path. A malformed id yields ErrNotFound, since it names no form.
func pathID(r *http.Request) (uuid.UUID, error) {
	id, err := identity.Parse(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, engage.ErrNotFound
	}
	return id, nil
}

// refusal maps errors of the domain to API errors; other errors pass unchanged.
func refusal(err error) error {
	if problems, ok := errors.AsType[engage.Problems](err); ok {
		return &apierr.Error{
			Kind:    apierr.Invalid,
			Message: "The request is not valid. error.fields says what to correct.",
			Fields:  problems,
		}
	}
	switch {
	case errors.Is(err, engage.ErrNotFound):
		return apierr.New(apierr.NotFound, "There is no such form in this workspace.")
	case errors.Is(err, engage.ErrStale):
		return apierr.New(
			apierr.PreconditionFailed,
			"The form has changed since you read it. Read it again and repeat your change.",
		)
	}
	return err
}
