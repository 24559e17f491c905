package programmes

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// MoveAll handles POST …/transitions: 200 with a result for each item, in order. An error of one item does not affect
// the others.
func (e *Endpoint) MoveAll() http.Handler { return e.write(records.UpTo(maxBatchBody), e.decodeMoves) }

func (e *Endpoint) decodeMoves(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := strictjson.ReadBody(r.Header, content, "application/json")
	if err != nil {
		return nil, err
	}
	items, err := readItems(object)
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(items))
	var valid []programme.Move
	for i, item := range items {
		one, err := readMoveItem(item)
		if failures[i] = err; err == nil {
			valid = append(valid, one)
		}
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		all, err := writer.Move(ctx, caller.WorkspaceID, valid)
		if err != nil {
			return idempotency.Answer{}, err
		}
		return answerItems(failures, all)
	}, nil
}

// readMoveItem reads an item: id and to. An id that is not a UUID is treated as the id of no programme.
func readMoveItem(item json.RawMessage) (programme.Move, error) {
	object, err := strictjson.ReadObject(item)
	if err != nil {
		return programme.Move{}, apierr.New(apierr.Invalid, "The item must be a JSON object.")
	}
	problems := unknownMembers(object, "id", "to")
	text, isText := object.Text("id")
	if !isText {
		problems["id"] = "Must be the id of a programme."
	}
	status, isText := object.Text("to")
	to, known := programme.ParseStatus(status)
	if !isText || !known {
		problems["to"] = programme.StatusMessage
	}
	if err := problems.OrNil(); err != nil {
		return programme.Move{}, err
	}
	id, err := identity.Parse(text)
	if err != nil {
		return programme.Move{}, programme.ErrNotFound
	}
	return programme.Move{ID: id, To: to}, nil
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
