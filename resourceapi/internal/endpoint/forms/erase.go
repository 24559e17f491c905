package forms

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// maxEmail is the length in bytes above which a text is no e-mail address (RFC 5321).
const maxEmail = 254

// Delete handles DELETE of a form with its submissions: 200 with their number, or 202 if a worker erases them.
func (e *Endpoint) Delete() http.Handler {
	return e.erase(perm.EngageWriteForms, func(r *http.Request, caller gate.Caller, _ []byte) (effect, error) {
		if !caller.Permissions.Has(perm.EngageWriteSubmissions) {
			return nil, apierr.New(apierr.Forbidden, "Deleting a form deletes its submissions, which requires the "+
				"permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential.")
		}
		return e.counted(r, caller, engage.ErrNotFound, engage.Writer.EraseForm)
	})
}

// DeleteSubmission handles DELETE of a submission: 204.
func (e *Endpoint) DeleteSubmission() http.Handler {
	return e.erase(perm.EngageWriteSubmissions, func(
		r *http.Request, caller gate.Caller, _ []byte,
	) (effect, error) {
		id, err := records.PathID(r, engage.ErrNoSubmission)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
			err := writer.EraseSubmission(ctx, caller.WorkspaceID, id, caller.User)
			return idempotency.Answer{Status: http.StatusNoContent}, err
		}, nil
	})
}

// DeleteSupporter handles DELETE of a supporter with all that they sent: 200 with the number of submissions, or 202.
func (e *Endpoint) DeleteSupporter() http.Handler {
	return e.erase(perm.EngageWriteSubmissions, func(
		r *http.Request, caller gate.Caller, _ []byte,
	) (effect, error) {
		return e.counted(r, caller, engage.ErrNoSupporter, engage.Writer.EraseSupporter)
	})
}

// Erase handles POST …/erase, which erases the supporter with an e-mail address: 200 with the number of submissions,
// 0 if the address is unknown, or 202.
func (e *Endpoint) Erase() http.Handler {
	return e.erase(perm.EngageWriteSubmissions, func(
		r *http.Request, caller gate.Caller, content []byte,
	) (effect, error) {
		object, err := strictjson.ReadBody(r.Header, content, "application/json")
		if err != nil {
			return nil, err
		}
		problems := invalid.Fields(strictjson.UnknownMembers(object, "email"))
		email, _ := object.Text("email")
		email = spelling.Key(email)
		if !strings.Contains(email, "@") || len(email) > maxEmail || strings.ContainsRune(email, 0) {
			problems["email"] = "Must be an e-mail address."
		}
		if err := problems.OrNil(); err != nil {
			return nil, err
		}
		return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
			return e.erased(writer.EraseAddress(ctx, caller.WorkspaceID, email, caller.User))
		}, nil
	})
}

func (e *Endpoint) erase(need perm.Permission, decode records.Decoder[engage.Writer]) http.Handler {
	return records.Writes[engage.Writer]{
		Gate:     e.gate,
		Need:     need,
		Once:     e.store.Once,
		Refusals: refusals,
	}.Handler(records.UpTo(maxBody), decode)
}

// counted erases the record of the path.
func (e *Endpoint) counted(
	r *http.Request,
	caller gate.Caller,
	notFound error,
	erase func(w engage.Writer, ctx context.Context, workspaceID, id, by uuid.UUID) (engage.Erasure, error),
) (effect, error) {
	id, err := records.PathID(r, notFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
		return e.erased(erase(writer, ctx, caller.WorkspaceID, id, caller.User))
	}, nil
}

// An acceptedErasure is the response to an erasure that a worker does; statusUrl returns its status (contract, section
// 6a).
type acceptedErasure struct {
	ID        uuid.UUID     `json:"id"`
	Status    engage.Status `json:"status"`
	StatusURL string        `json:"statusUrl"`
}

// erasureState is the status of an erasure.
type erasureState struct {
	ID                 uuid.UUID     `json:"id"`
	Status             engage.Status `json:"status"`
	DeletedSubmissions int           `json:"deletedSubmissions"`
}

func (e *Endpoint) erased(erasure engage.Erasure, err error) (idempotency.Answer, error) {
	if err != nil {
		return idempotency.Answer{}, err
	}
	if erasure.Status == engage.Accepted {
		at := e.erasures + "/" + erasure.ID.String()
		content, err := web.EncodeJSON(acceptedErasure{erasure.ID, erasure.Status, at})
		return idempotency.Answer{Status: http.StatusAccepted, Location: at, Body: content}, err
	}
	content, err := web.EncodeJSON(map[string]int{"deletedSubmissions": erasure.Deleted})
	return idempotency.Answer{Status: http.StatusOK, Body: content}, err
}

// ReadErasure handles GET of an erasure that a worker does, for callers who may erase such a record.
func (e *Endpoint) ReadErasure() http.Handler {
	return e.gate.Guard(perm.EngageWriteSubmissions, gate.Serving(func(
		w http.ResponseWriter, r *http.Request, caller gate.Caller,
	) error {
		id, err := records.PathID(r, engage.ErrNoErasure)
		if err != nil {
			return refusals.Of(err)
		}
		erasure, err := e.store.Erasure(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		if erasure.Kind == engage.ErasedForm && !caller.Permissions.Has(perm.EngageWriteForms) {
			return apierr.New(apierr.Forbidden, "The erasure of a form requires the permission "+
				string(perm.EngageWriteForms)+" of the user and of the credential.")
		}
		web.JSON(w, http.StatusOK, erasureState{erasure.ID, erasure.Status, erasure.Deleted})
		return nil
	}))
}
