package forms

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

const maxBody = 64 << 10

type effect = records.Effect[engage.Writer]

// Create handles POST: 201 with the new form.
func (e *Endpoint) Create() http.Handler { return e.write(e.decodeCreate) }

// Change handles PATCH of one form: 200, or 412 if If-Match names another version.
func (e *Endpoint) Change() http.Handler { return e.write(e.decodeChange) }

func (e *Endpoint) write(decode records.Decoder[engage.Writer]) http.Handler {
	return records.Writes[engage.Writer]{
		Gate:     e.gate,
		Need:     perm.EngageWriteForms,
		Once:     e.store.Once,
		Refusals: refusals,
	}.Handler(records.UpTo(maxBody), decode)
}

func (e *Endpoint) decodeCreate(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	form, err := readForm(r.Header, content)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
		embedKey, err := credential.EmbedKey.New(rand.Reader)
		if err != nil {
			return idempotency.Answer{}, err
		}
		made := form
		made.ID, made.WorkspaceID, made.EmbedKey = identity.New(), caller.WorkspaceID, embedKey.Reveal()
		if made, err = writer.CreateForm(ctx, made, caller.User); err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := answerWith(http.StatusCreated, made)
		answer.Location = e.collection + "/" + made.ID.String()
		return answer, err
	}, nil
}

func (e *Endpoint) decodeChange(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	change, err := readChange(r.Header, content)
	if err != nil {
		return nil, err
	}
	if change.RetentionMonths != nil && !caller.Permissions.Has(perm.EngageWriteSubmissions) {
		return nil, apierr.New(apierr.Forbidden, "Changing retentionMonths deletes submissions earlier or later, "+
			"which requires the permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential.")
	}
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return nil, err
	}
	id, err := records.PathID(r, engage.ErrNotFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
		form, err := writer.ReplaceForm(ctx, caller.WorkspaceID, id, func(f engage.Form) (engage.Form, error) {
			return change.Apply(f), conditions.CheckChange(f.Version)
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
		return answerWith(http.StatusOK, form)
	}, nil
}

func answerWith(status int, f engage.Form) (idempotency.Answer, error) {
	content, err := web.EncodeJSON(recordOf(f))
	return idempotency.Answer{Status: status, ETag: precondition.Tag(f.Version), Body: content}, err
}
