// Package forms answers: how does a workspace speak of its public forms over HTTP?
//
// It reads requests, hands them to the domain and writes what comes back; who may ask is the gate's business. All paths
// are under /v1/engage/forms (contract, section 6).
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

// Path is where the collection lives, below the base address.
const Path = "/v1/engage/forms"

// What the routes ask of their callers.
var (
	toRead            = gate.Need{Module: "engage", Permission: perm.EngageReadForms}
	toWrite           = gate.Need{Module: "engage", Permission: perm.EngageWriteForms}
	toReadSubmissions = gate.Need{Module: "engage", Permission: perm.EngageReadSubmissions}
)

// Store keeps forms. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error)
	// Forms and Submissions hand a page over record by record, as long as take has room.
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
	// Once runs effect in one transaction, or finds the answer that key already has.
	Once(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context, engage.Writer) (idempotency.Answer, error),
	) (idempotency.Answer, error)
}

// Deps are what an Endpoint is made of.
type Deps struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *engage.Cursors
}

// An Endpoint makes the handlers.
type Endpoint struct {
	collection string // its absolute URL
	gate       *gate.Gate
	store      Store
	cursors    *engage.Cursors
}

// New makes the endpoint.
func New(d Deps) *Endpoint { return &Endpoint{d.BaseURL + Path, d.Gate, d.Store, d.Cursors} }

// pathID reads the id of the path. One that is no identifier names no form, so it is unknown rather than invalid.
func pathID(r *http.Request) (uuid.UUID, error) {
	id, err := identity.Parse(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, engage.ErrNotFound
	}
	return id, nil
}

// refusal gives the domain's errors their kind and words; others pass.
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
			"The form was changed since you read it. Read it again, then repeat your change.",
		)
	}
	return err
}
