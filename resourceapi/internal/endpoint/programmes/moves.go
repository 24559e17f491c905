package programmes

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// MoveAll handles POST …/transitions: 200 with a result for each item, in order. An error of one item does not affect
// the others.
func (e *Endpoint) MoveAll() http.Handler { return e.write(records.UpTo(maxBatchBody), e.decodeMoves) }

func (e *Endpoint) decodeMoves(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	return decodeItems(r.Header, content, readMoveItem,
		func(ctx context.Context, writer programme.Writer, all []programme.Move) ([]programme.Upserted, error) {
			return writer.Move(ctx, caller.WorkspaceID, all)
		})
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
