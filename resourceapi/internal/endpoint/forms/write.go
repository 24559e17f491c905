package forms

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/body"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
)

const maxBody = 64 << 10

// Create answers POST: 201 with the new form.
func (e *Endpoint) Create() http.Handler {
	return e.gate.Guard(toWrite, gate.Serving(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		content, err := body.Read(w, r, maxBody)
		if err != nil {
			return err
		}
		scope := idempotency.Scope{Tenant: caller.Tenant, User: caller.User, Route: r.Method + " " + r.URL.Path}
		key, err := idempotency.ReadKey(r.Header, scope, content)
		if err != nil {
			return err
		}
		// A request that is no good may still repeat one that was answered, so its own mistakes wait until the key is
		// looked up.
		definition, mistake := readDefinition(r.Header, content)
		answer, err := e.store.Once(r.Context(), key, func(ctx context.Context, writer engage.Writer) (idempotency.Answer, error) {
			if mistake != nil {
				return idempotency.Answer{}, mistake
			}
			return create(ctx, writer, caller, definition)
		})
		if err != nil {
			return refusal(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Status)
		_, _ = w.Write(answer.Body) // a caller who has left is no error of ours
		return nil
	}))
}

func create(ctx context.Context, writer engage.Writer, caller gate.Caller, d engage.Definition) (idempotency.Answer, error) {
	embedKey, err := credential.EmbedKey.New(rand.Reader)
	if err != nil {
		return idempotency.Answer{}, err
	}
	form, err := writer.CreateForm(ctx, engage.Form{Definition: d, ID: identity.New(), Tenant: caller.Tenant, EmbedKey: embedKey.Reveal()}, caller.User)
	if err != nil {
		return idempotency.Answer{}, err
	}
	content, err := json.Marshal(recordOf(form))
	return idempotency.Answer{Status: http.StatusCreated, Body: content}, err
}
