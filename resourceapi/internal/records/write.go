package records

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/perm"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// An Effect runs a write with the writer W of one transaction and returns the answer.
type Effect[W any] func(context.Context, W) (idempotency.Answer, error)

// A Decoder parses a request whose body is content. It does no I/O.
type Decoder[W any] func(r *http.Request, caller gate.Caller, content []byte) (Effect[W], error)

// A Body reads the body of an admitted request. release is called when the write has ended.
type Body func(w http.ResponseWriter, r *http.Request, caller gate.Caller) (content []byte, release func(), err error)

// UpTo returns the Body that reads at most limit bytes.
func UpTo(limit int64) Body {
	return func(w http.ResponseWriter, r *http.Request, _ gate.Caller) ([]byte, func(), error) {
		content, err := strictjson.Read(w, r, limit)
		return content, func() {}, err
	}
}

// Writes serves the writes of one module. Every write takes the same steps: admission, body, Idempotency-Key, decoding,
// transaction, answer.
type Writes[W any] struct {
	Gate *gate.Gate
	Need perm.Permission
	// Once runs effect in one transaction, or returns the answer already stored under key.
	Once func(
		ctx context.Context,
		key idempotency.Key,
		effect func(context.Context, W) (idempotency.Answer, error),
	) (idempotency.Answer, error)
	Refusals Refusals
}

// Handler handles the writes that decode parses.
func (s Writes[W]) Handler(body Body, decode Decoder[W]) http.Handler {
	return s.Gate.Guard(
		s.Need,
		gate.ServingAnyQuery(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			content, release, err := body(w, r, caller)
			if err != nil {
				return err
			}
			defer release()
			answer, err := s.run(r, caller, content, decode)
			if err != nil {
				return s.Refusals.Of(err)
			}
			answer.Serve(w)
			return nil
		}),
	)
}

// run decodes the request and runs its effect. An invalid request may repeat an answered one, so its error is returned
// only after the key was looked up.
func (s Writes[W]) run(
	r *http.Request,
	caller gate.Caller,
	content []byte,
	decode Decoder[W],
) (idempotency.Answer, error) {
	scope := idempotency.Scope{
		WorkspaceID: caller.WorkspaceID,
		User:        caller.User,
		Route:       idempotency.RouteOf(r),
	}
	key, err := idempotency.ReadKey(r.Header, scope, content)
	if err != nil {
		return idempotency.Answer{}, err
	}
	key.By = idempotency.Caller{Credential: caller.Credential, Held: caller.Permissions}
	effect, mistake := decode(r, caller, content)
	if refused, ok := errors.AsType[*apierr.Error](mistake); ok && refused.Kind == apierr.Forbidden {
		return idempotency.Answer{}, mistake // what the caller may not do now is not repeated either
	}
	mistake = cmp.Or(strictjson.UnknownParameters(r.URL.RawQuery), mistake)
	if mistake != nil {
		if !key.Given() {
			return idempotency.Answer{}, mistake
		}
		effect = func(context.Context, W) (idempotency.Answer, error) { return idempotency.Answer{}, mistake }
	}
	return s.Once(r.Context(), key, effect)
}
