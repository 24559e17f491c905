package programmes

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// maxBatchBody is the largest body of a batch, in bytes.
const maxBatchBody = 2 << 20

// An itemResult is the result of one item of a batch: the status that a request for it alone would have, with the id of
// the programme or the error.
type itemResult struct {
	Status int            `json:"status"`
	ID     *uuid.UUID     `json:"id,omitempty"`
	Error  *apierr.Detail `json:"error,omitempty"`
}

// decodeItems returns the Decoder of a batch: 200 with a result for each item, in order. A bad item stops no other.
// read reads an item, and run does the valid ones together.
func decodeItems[T any](
	read func(rest.Object) (T, error),
	run func(programme.Writer, context.Context, uuid.UUID, []T) ([]programme.Upserted, error),
) gate.Decoder[programme.Writer] {
	return func(r *gate.WriteRequest) effect {
		items, err := readItems(r.Object("application/json"))
		r.Refuse(err)
		if r.Refused() { // perhaps with far too many items to read them
			return nil
		}
		failures := make([]error, len(items))
		var valid []T
		for i, item := range items {
			one, err := readItem(item, read)
			if failures[i] = err; err == nil {
				valid = append(valid, one)
			}
		}
		return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
			all, err := run(writer, ctx, r.WorkspaceID, valid)
			if err != nil {
				return rest.Answer{}, err
			}
			return answerItems(failures, all)
		}
	}
}

func readItem[T any](item json.RawMessage, read func(rest.Object) (T, error)) (one T, err error) {
	object, err := rest.ParseObject(item)
	if err != nil {
		return one, apierr.New(apierr.Invalid, "The item must be a JSON object.")
	}
	return read(object)
}

// answerItems returns the results of a batch in the order of its items. all has the results of the items without an
// error in failures.
func answerItems(failures []error, all []programme.Upserted) (rest.Answer, error) {
	results := make([]itemResult, len(failures))
	for i, failure := range failures {
		one := programme.Upserted{Err: failure}
		if failure == nil {
			one, all = all[0], all[1:]
		}
		results[i] = resultOf(one)
	}
	return rest.JSON(http.StatusOK, map[string]any{"data": results}, nil)
}

func readItems(object rest.Object) ([]json.RawMessage, error) {
	problems := rest.UnknownMembers(object, "items")
	var items []json.RawMessage
	if err := json.Unmarshal(object["items"], &items); err != nil || len(items) == 0 ||
		len(items) > programme.MaxBatch {
		problems["items"] = "Must be an array of 1 to 500 programmes."
	}
	return items, problems.OrNil()
}

func resultOf(one programme.Upserted) itemResult {
	if one.Err != nil {
		refusal := apierr.Of(refusals.Of(one.Err))
		return itemResult{Status: refusal.Status(), Error: new(refusal.Detail())}
	}
	status := http.StatusOK
	if one.Created {
		status = http.StatusCreated
	}
	return itemResult{Status: status, ID: &one.Programme.ID}
}

// readMoveItem reads an item: id and to. An id that is not a UUID is treated as the id of no programme.
func readMoveItem(object rest.Object) (programme.Move, error) {
	problems := rest.UnknownMembers(object, "id", "to")
	text, isText := object.Text("id")
	if !isText {
		problems["id"] = "Must be the id of a programme."
	}
	to := readTo(object, problems)
	if err := problems.OrNil(); err != nil {
		return programme.Move{}, err
	}
	id, err := identity.Parse(text)
	if err != nil {
		return programme.Move{}, programme.ErrNotFound
	}
	return programme.Move{ID: id, To: to}, nil
}
