package forms

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

const (
	maxBody  = 64 << 10
	maxEmail = 254 // length in bytes above which a text is no e-mail address (RFC 5321)
)

type effect = rest.Effect[engage.Writer]

func (e *Endpoint) write(need perm.Permission, decode gate.Decoder[engage.Writer]) http.Handler {
	return gate.Writes[engage.Writer]{Module: e.module(), Need: need, Once: e.Store.Once}.
		Handler(gate.UpTo(maxBody), decode)
}

// decodeCreate parses POST: 201 with the new form.
func (e *Endpoint) decodeCreate(r *gate.WriteRequest) effect {
	form, err := readForm(r.Object("application/json"))
	r.Refuse(err)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		embedKey, err := credential.EmbedKey.New(rand.Reader)
		if err != nil {
			return rest.Answer{}, err
		}
		made := form
		made.ID, made.WorkspaceID, made.EmbedKey = identity.New(), r.WorkspaceID, embedKey.Reveal()
		made, err = writer.CreateForm(ctx, made, r.User)
		answer, err := answerWith(http.StatusCreated, made, err)
		answer.Location = e.BaseURL + Path + "/" + made.ID.String()
		return answer, err
	}
}

// decodeChange parses PATCH of one form: 200, or 412 if If-Match names another version.
func decodeChange(r *gate.WriteRequest) effect {
	change, err := readChange(r.Object("application/json", "application/merge-patch+json"))
	r.Refuse(err)
	if change.RetentionMonths != nil && !r.Permissions.Has(perm.EngageWriteSubmissions) {
		r.Refuse(apierr.New(apierr.Forbidden, "Changing retentionMonths deletes submissions earlier or later, "+
			"which requires the permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential."))
	}
	conditions := r.Conditions()
	id := r.ID(engage.ErrNotFound)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		form, err := writer.ReplaceForm(ctx, r.WorkspaceID, id, func(f engage.Form) (engage.Form, error) {
			return change.Apply(f), conditions.CheckChange(f.Version)
		})
		return answerWith(http.StatusOK, form, err)
	}
}

func answerWith(status int, f engage.Form, err error) (rest.Answer, error) {
	answer, err := rest.JSON(status, f, err)
	answer.ETag = rest.Tag(f.Version)
	return answer, err
}

// decodeDelete parses DELETE of a form with its submissions: 200 with their number, or 202 if a worker erases them.
func (e *Endpoint) decodeDelete(r *gate.WriteRequest) effect {
	if !r.Permissions.Has(perm.EngageWriteSubmissions) {
		r.Refuse(apierr.New(apierr.Forbidden, "Deleting a form deletes its submissions, which requires the "+
			"permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential."))
	}
	id := r.ID(engage.ErrNotFound)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		return e.erased(writer.EraseForm(ctx, r.WorkspaceID, id, r.User))
	}
}

// decodeDeleteSupporter parses DELETE of a supporter with all that they sent: 200 with the number of submissions, or
// 202.
func (e *Endpoint) decodeDeleteSupporter(r *gate.WriteRequest) effect {
	id := r.ID(engage.ErrNoSupporter)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		return e.erased(writer.EraseSupporter(ctx, r.WorkspaceID, id, r.User))
	}
}

// decodeErase parses POST …/erase, which erases the supporter with an e-mail address: 200 with the number of
// submissions, 0 if the address is unknown, or 202.
func (e *Endpoint) decodeErase(r *gate.WriteRequest) effect {
	object := r.Object("application/json")
	problems := rest.UnknownMembers(object, "email")
	email, _ := object.Text("email")
	email = spelling.Key(email)
	if !strings.Contains(email, "@") || len(email) > maxEmail || strings.ContainsRune(email, 0) {
		problems["email"] = "Must be an e-mail address."
	}
	r.Refuse(problems.OrNil())
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		return e.erased(writer.EraseAddress(ctx, r.WorkspaceID, email, r.User))
	}
}

// erased returns the answer to an erasure. If a worker does it, statusUrl returns its status (contract, section 6a).
func (e *Endpoint) erased(erasure engage.Erasure, err error) (rest.Answer, error) {
	if erasure.Status != engage.Accepted {
		return rest.JSON(http.StatusOK, map[string]int{"deletedSubmissions": erasure.Deleted}, err)
	}
	at := e.BaseURL + ErasuresPath + "/" + erasure.ID.String()
	accepted := map[string]any{"id": erasure.ID, "status": erasure.Status, "statusUrl": at}
	answer, err := rest.JSON(http.StatusAccepted, accepted, err)
	answer.Location = at
	return answer, err
}
