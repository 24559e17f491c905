package programmes

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// maxBatchBody is the largest body of a batch, in bytes.
const maxBatchBody = 2 << 20

// Batch handles POST …/batch: 200 with a result for each item, in order. A bad item stops no other.
func (e *Endpoint) Batch() http.Handler { return e.write(records.UpTo(maxBatchBody), e.decodeBatch) }

// An itemResult is the result of one item of a batch: the status that a request for it alone would have, with the id of
// the programme or the error.
type itemResult struct {
	Status int             `json:"status"`
	ID     *uuid.UUID      `json:"id,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

func (e *Endpoint) decodeBatch(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	return decodeItems(r.Header, content, readItem,
		func(ctx context.Context, writer programme.Writer, all []programme.Upsert) ([]programme.Upserted, error) {
			return writer.Upsert(ctx, caller.WorkspaceID, all)
		})
}

// decodeItems reads each item of a batch with read. The effect runs the valid ones together.
func decodeItems[T any](
	h http.Header,
	content []byte,
	read func(json.RawMessage) (T, error),
	run func(context.Context, programme.Writer, []T) ([]programme.Upserted, error),
) (effect, error) {
	object, err := strictjson.ReadBody(h, content, "application/json")
	if err != nil {
		return nil, err
	}
	items, err := readItems(object)
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(items))
	var valid []T
	for i, item := range items {
		one, err := read(item)
		if failures[i] = err; err == nil {
			valid = append(valid, one)
		}
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		all, err := run(ctx, writer, valid)
		if err != nil {
			return idempotency.Answer{}, err
		}
		return answerItems(failures, all)
	}, nil
}

// answerItems returns the results of a batch in the order of its items. all has the results of the items without an
// error in failures.
func answerItems(failures []error, all []programme.Upserted) (idempotency.Answer, error) {
	results := make([]itemResult, len(failures))
	for i, failure := range failures {
		one := programme.Upserted{Err: failure}
		if failure == nil {
			one, all = all[0], all[1:]
		}
		var err error
		if results[i], err = resultOf(one); err != nil {
			return idempotency.Answer{}, err
		}
	}
	body, err := web.EncodeJSON(map[string]any{"data": results})
	return idempotency.Answer{Status: http.StatusOK, Body: body}, err
}

func readItems(object strictjson.Object) ([]json.RawMessage, error) {
	problems := invalid.Fields(strictjson.UnknownMembers(object, "items"))
	var items []json.RawMessage
	if err := json.Unmarshal(object["items"], &items); err != nil || len(items) == 0 ||
		len(items) > programme.MaxBatch {
		problems["items"] = "Must be an array of 1 to 500 programmes."
	}
	return items, problems.OrNil()
}

func readItem(item json.RawMessage) (programme.Upsert, error) {
	object, err := strictjson.ReadObject(item)
	if err != nil {
		return programme.Upsert{}, apierr.New(apierr.Invalid, "The item must be a JSON object.")
	}
	return readUpsert(object)
}

func resultOf(one programme.Upserted) (itemResult, error) {
	if one.Err != nil {
		refusal := apierr.Of(refusals.Of(one.Err))
		content, err := web.EncodeJSON(apierr.Nested(refusal))
		if err != nil {
			return itemResult{}, err
		}
		nested, err := nestedError(content)
		return itemResult{Status: refusal.Status(), Error: nested}, err
	}
	status := http.StatusOK
	if one.Created {
		status = http.StatusCreated
	}
	return itemResult{Status: status, ID: &one.Programme.ID}, nil
}
