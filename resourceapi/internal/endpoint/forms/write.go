package forms

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
	"github.com/almonerhq/almoner/resourceapi/internal/unknown"
)

const maxBody = 64 << 10

// An effect runs a write in its transaction and returns the answer.
type effect func(context.Context, engage.Writer) (idempotency.Answer, error)

// Create handles POST: 201 with the new form.
func (e *Endpoint) Create() http.Handler { return e.write(e.decodeCreate) }

// Change handles PATCH of one form: 200, or 412 if If-Match names another version.
func (e *Endpoint) Change() http.Handler { return e.write(e.decodeChange) }

// write handles an admitted write: it reads the body, then the Idempotency-Key, then decodes the request. An invalid
// request may still repeat an answered one, so its mistake is returned only after the key was looked up.
func (e *Endpoint) write(
	decode func(r *http.Request, caller gate.Caller, content []byte) (effect, error),
) http.Handler {
	return e.gate.Guard(
		toWrite,
		gate.ServingAnyQuery(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			content, err := strictjson.Read(w, r, maxBody)
			if err != nil {
				return err
			}
			scope := idempotency.Scope{
				WorkspaceID: caller.WorkspaceID,
				User:        caller.User,
				Route:       r.Method + " " + r.URL.EscapedPath(),
			}
			key, err := idempotency.ReadKey(r.Header, scope, content)
			if err != nil {
				return err
			}
			do, mistake := decode(r, caller, content)
			mistake = cmp.Or(unknown.Parameters(r.URL.RawQuery), mistake)
			if mistake != nil && !key.Given() {
				return refusal(mistake)
			}
			answer, err := e.store.Once(
				r.Context(),
				key,
				func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
					if mistake != nil {
						return idempotency.Answer{}, mistake
					}
					return do(ctx, writer)
				},
			)
			if err != nil {
				return refusal(err)
			}
			writeAnswer(w, answer)
			return nil
		}),
	)
}

func writeAnswer(w http.ResponseWriter, answer idempotency.Answer) {
	for name, value := range map[string]string{"ETag": answer.ETag, "Location": answer.Location} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // a client that disconnected is not an error
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
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return nil, err
	}
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
		form, err := writer.ReplaceForm(ctx, caller.WorkspaceID, id, func(f engage.Form) (engage.Form, error) {
			if !conditions.Holds(f.Version) || conditions.Seen(f.Version) {
				return f, engage.ErrStale
			}
			return change.Apply(f), nil
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
