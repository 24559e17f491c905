// Package forms serves the endpoints with which a workspace manages its public forms.
//
// It decodes requests, calls the domain and encodes the results; package gate decides who may call. All paths are
// under /v1/engage/forms (contract, section 6).
package forms

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
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
	// Forms, Submissions and Supporters pass the records of a page to take until it returns false.
	Forms(ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.Form) bool) (rest.End, error)
	Submissions(
		ctx context.Context, workspaceID, form uuid.UUID, r rest.Range, take func(engage.Submission) bool,
	) (rest.End, error)
	Submission(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error)
	Supporters(
		ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.StoredSupporter) bool,
	) (rest.End, error)
	Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error)
	// Erasure reads an erasure that a worker does.
	Erasure(ctx context.Context, workspaceID, id uuid.UUID) (engage.Erasure, error)
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once(ctx context.Context, key rest.Key, effect rest.Effect[engage.Writer]) (rest.Answer, error)
}

// An Endpoint makes the handlers.
type Endpoint struct {
	BaseURL string // without a trailing slash
	Gate    *gate.Gate
	Store   Store
	Cursors *rest.Cursors
	// RecordExport records in the audit log that the user by exports the submissions of a form.
	RecordExport func(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error
}

// Routes returns the handlers of the module by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		Path: {"GET": e.forms().List(), "POST": e.write(perm.EngageWriteForms, e.decodeCreate)},
		Path + "/{id}": {
			"GET":    e.forms().One(),
			"PATCH":  e.write(perm.EngageWriteForms, decodeChange),
			"DELETE": e.write(perm.EngageWriteForms, e.decodeDelete),
		},
		Path + "/{id}/submissions": {"GET": e.submissions().List()},

		Path + "/{id}/submissions/export": {"GET": e.export()},

		SubmissionsPath + "/{id}": {
			"GET": e.submissions().One(),
			"DELETE": e.write(perm.EngageWriteSubmissions,
				gate.Deletes(engage.ErrNoSubmission, engage.Writer.EraseSubmission)),
		},
		SupportersPath: {"GET": e.supporters().List()},
		SupportersPath + "/{id}": {
			"GET":    e.supporters().One(),
			"DELETE": e.write(perm.EngageWriteSubmissions, e.decodeDeleteSupporter),
		},
		SupportersPath + "/erase": {"POST": e.write(perm.EngageWriteSubmissions, e.decodeErase)},
		ErasuresPath + "/{id}":    {"GET": e.erasures().One()},
	}
}

func (e *Endpoint) module() gate.Module {
	return gate.Module{Gate: e.Gate, Cursors: e.Cursors, Refusals: refusals}
}

// forms serves the workspace's forms, each with the entity tag for If-Match.
func (e *Endpoint) forms() gate.Records[engage.Form, engage.Form] {
	return gate.Records[engage.Form, engage.Form]{
		Module: e.module(),
		Need:   perm.EngageReadForms,
		Record: gate.Itself[engage.Form],
		Name:   "forms",
		Page:   e.Store.Forms,
		Position: func(f engage.Form) rest.Position {
			return rest.Position{CreatedAt: time.Time(f.CreatedAt), ID: f.ID}
		},
		NotFound: engage.ErrNotFound,
		Read:     e.Store.Form,
		Version:  func(f engage.Form) int { return f.Version },
	}
}

// submissions serves the submissions of a form.
func (e *Endpoint) submissions() gate.Records[engage.Submission, engage.SubmissionRecord] {
	return gate.Records[engage.Submission, engage.SubmissionRecord]{
		Module: e.module(),
		Need:   perm.EngageReadSubmissions,
		Record: engage.Submission.Record,
		Name:   "submissions",
		Owner:  engage.ErrNotFound,
		// The form belongs to the caller's workspace, so its submissions do too.
		Find: func(ctx context.Context, workspaceID, form uuid.UUID) error {
			_, err := e.Store.Form(ctx, workspaceID, form)
			return err
		},
		Filters:  rest.Filters{Updated: true, Statuses: engage.Statuses(), Created: true},
		PageOf:   e.Store.Submissions,
		Position: func(s engage.Submission) rest.Position { return rest.Position{CreatedAt: s.CreatedAt, ID: s.ID} },
		NotFound: engage.ErrNoSubmission,
		Read:     e.Store.Submission,
	}
}

// supporters serves the workspace's supporters.
func (e *Endpoint) supporters() gate.Records[engage.StoredSupporter, engage.StoredSupporter] {
	return gate.Records[engage.StoredSupporter, engage.StoredSupporter]{
		Module: e.module(),
		Need:   perm.EngageReadSubmissions,
		Record: gate.Itself[engage.StoredSupporter],
		Name:   "supporters",
		Page:   e.Store.Supporters,
		Position: func(s engage.StoredSupporter) rest.Position {
			return rest.Position{CreatedAt: time.Time(s.CreatedAt), ID: s.ID}
		},
		NotFound: engage.ErrNoSupporter,
		Read:     e.Store.Supporter,
	}
}

// erasures serves the erasures that a worker does, each for callers who may erase such a record.
func (e *Endpoint) erasures() gate.Records[engage.Erasure, engage.Erasure] {
	return gate.Records[engage.Erasure, engage.Erasure]{
		Module:   e.module(),
		Need:     perm.EngageWriteSubmissions,
		Record:   gate.Itself[engage.Erasure],
		NotFound: engage.ErrNoErasure,
		Read:     e.Store.Erasure,
		Check: func(caller gate.Caller, erasure engage.Erasure) error {
			if erasure.Kind == engage.ErasedForm && !caller.Permissions.Has(perm.EngageWriteForms) {
				return apierr.New(apierr.Forbidden, "The erasure of a form requires the permission "+
					string(perm.EngageWriteForms)+" of the user and of the credential.")
			}
			return nil
		},
	}
}

var refusals = rest.Refusals{
	{Err: engage.ErrNotFound, As: apierr.New(apierr.NotFound, "There is no such form in this workspace.")},
	{Err: rest.ErrStale, As: apierr.New(apierr.PreconditionFailed,
		"The form has changed since you read it. Read it again and repeat your change.")},
}
