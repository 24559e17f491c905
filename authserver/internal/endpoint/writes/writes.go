// Package writes serves the writes of the account endpoints.
//
// A client can repeat a write with the same Idempotency-Key: the write takes effect once, and the client gets the first
// answer again (contract, section 6). The key is looked up after authorization and before the request is parsed.
package writes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/web"
)

// MaxBody is the maximum size of a request's body.
const MaxBody = 64 << 10

// A Store runs a write and stores its answer.
type Store interface {
	// Once runs effect in one transaction and stores the answer under key, or returns the answer that is stored under
	// it. The changes that effect makes with its context belong to the transaction. effect may be called again if
	// Postgres aborted the transaction.
	Once(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context) (idempotency.Answer, error),
	) (idempotency.Answer, error)
}

// An Effect is a write. It returns its answer.
type Effect func(w http.ResponseWriter, r *http.Request) (idempotency.Answer, error)

// Serve runs effect for the caller by in the workspace and writes its answer, or writes the answer that is stored under
// the request's Idempotency-Key. It returns an error of effect or of the store, or an *apierr.Error. After an error, it
// has written nothing.
func Serve(
	w http.ResponseWriter,
	r *http.Request,
	store Store,
	scope idempotency.Scope,
	by idempotency.Caller,
	effect Effect,
) error {
	answer, err := run(w, r, store, scope, by, effect)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	answer.Serve(w)
	return nil
}

func run(
	w http.ResponseWriter,
	r *http.Request,
	store Store,
	scope idempotency.Scope,
	by idempotency.Caller,
	effect Effect,
) (idempotency.Answer, error) {
	if len(r.Header.Values(idempotency.Header)) == 0 {
		return effect(w, r)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return idempotency.Answer{}, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return idempotency.Answer{}, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	scope.Route = idempotency.RouteOf(r)
	key, err := idempotency.ReadKey(r.Header, scope, content)
	if err != nil {
		return idempotency.Answer{}, err
	}
	key.By = by
	return store.Once(r.Context(), key, func(ctx context.Context) (idempotency.Answer, error) {
		again := r.WithContext(ctx)
		again.Body = io.NopCloser(bytes.NewReader(content))
		return effect(w, again)
	})
}

// JSON returns the answer with value as JSON, in the format of web.JSON.
func JSON(status int, value any) (idempotency.Answer, error) {
	var body bytes.Buffer
	err := web.NewEncoder(&body).Encode(value)
	return idempotency.Answer{Status: status, Body: body.Bytes()}, err
}
