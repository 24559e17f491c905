package programmes

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Bounds of request bodies, in bytes.
const (
	maxJSON = 64 << 10
	maxCSV  = 2 << 20
)

type effect = rest.Effect[programme.Writer]

func (e *Endpoint) write(body gate.Body, decode gate.Decoder[programme.Writer]) http.Handler {
	module := gate.Module{Gate: e.Gate, Refusals: refusals}
	return gate.Writes[programme.Writer]{Module: module, Need: perm.ProgrammesWrite, Once: e.Store.Once}.
		Handler(body, decode)
}

// decodeCreate parses POST: 201 with the new programme.
func (e *Endpoint) decodeCreate(r *gate.WriteRequest) effect {
	details, err := readDetails(readJSON(r))
	r.Refuse(err)
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		p, err := writer.Create(ctx, r.WorkspaceID, details)
		return e.created(p), err
	}
}

// decodeChange parses PATCH of one programme: 200, or 412 if If-Match names another version.
func decodeChange(r *gate.WriteRequest) effect {
	change, err := readChange(readJSON(r))
	r.Refuse(err)
	replace := replacing(r, change.Apply)
	if change.ExternalID == nil {
		return replace
	}
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		if err := writer.LockExternalIDs(ctx, r.WorkspaceID); err != nil {
			return rest.Answer{}, err
		}
		return replace(ctx, writer)
	}
}

// decodeMove parses POST …/transitions: 200 with the programme, or 409.
func decodeMove(r *gate.WriteRequest) effect {
	object := readJSON(r)
	problems := rest.UnknownMembers(object, "to")
	to := readTo(object, problems)
	r.Refuse(problems.OrNil())
	return replacing(r, func(p programme.Programme) (programme.Programme, error) {
		if !p.Status.CanBecome(to) {
			return p, programme.ErrTransition
		}
		p.Status = to
		return p, nil
	})
}

// replacing edits the programme of the path if the request's conditions allow its version.
func replacing(r *gate.WriteRequest, edit func(programme.Programme) (programme.Programme, error)) effect {
	conditions := r.Conditions()
	id := r.ID(programme.ErrNotFound)
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		p, err := writer.Replace(ctx, r.WorkspaceID, id, func(p programme.Programme) (programme.Programme, error) {
			if err := conditions.CheckChange(p.Version); err != nil {
				return p, err
			}
			return edit(p)
		})
		return answerWith(http.StatusOK, p), err
	}
}

// decodeImport parses POST …/imports: 202 with the URL of the import's status.
func (e *Endpoint) decodeImport(r *gate.WriteRequest) effect {
	r.Refuse(rest.CheckType(r.Header, "text/csv"))
	if r.Refused() {
		return nil
	}
	text := string(r.Content)
	r.Refuse(programme.CheckImport(text))
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		web.AddRecords(ctx, 0) // they count when it is processed
		personal := r.Kind == standing.PersonalAccessToken
		by := programme.Importer{User: r.User, Credential: r.Credential, Personal: personal}
		id, err := writer.AcceptImport(ctx, r.WorkspaceID, by, text)
		status := e.BaseURL + Path + "/imports/" + id.String()
		accepted := map[string]any{"id": id, "status": programme.ImportAccepted, "statusUrl": status}
		answer, err := rest.JSON(http.StatusAccepted, accepted, err)
		answer.Location = status
		return answer, err
	}
}

func readJSON(r *gate.WriteRequest) rest.Object {
	return r.Object("application/json", "application/merge-patch+json")
}

func answerWith(status int, p programme.Programme) rest.Answer {
	return rest.Answer{Status: status, ETag: rest.Tag(p.Version), Body: programme.AppendRecord(nil, p)}
}

func (e *Endpoint) created(p programme.Programme) rest.Answer {
	answer := answerWith(http.StatusCreated, p)
	answer.Location = e.BaseURL + Path + "/" + p.ID.String()
	return answer
}

// decodePut parses PUT of the programme with an external id: 201 if it is new, else 200.
func (e *Endpoint) decodePut(r *gate.WriteRequest) effect {
	object := readJSON(r)
	id, err := pathExternalID(r.Request, object)
	r.Refuse(err)
	wanted, err := readUpsert(object)
	r.Refuse(err)
	wanted.New.ExternalID, wanted.Check = id, r.Conditions().CheckChange
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		all, err := writer.Upsert(ctx, r.WorkspaceID, []programme.Upsert{wanted})
		switch {
		case err != nil:
			return rest.Answer{}, err
		case all[0].Created:
			return e.created(all[0].Programme), all[0].Err
		}
		return answerWith(http.StatusOK, all[0].Programme), all[0].Err
	}
}

// pathExternalID reads the external id of the path, which the body may repeat. The path has it percent-encoded.
func pathExternalID(r *http.Request, object rest.Object) (string, error) {
	id, err := url.PathUnescape(r.PathValue("externalId"))
	if err != nil {
		return "", rest.Problems{programme.FieldExternalID: "Must be URL-encoded."}
	}
	if message := programme.CheckExternalID(id); message != "" {
		return "", rest.Problems{programme.FieldExternalID: message}
	}
	named, _ := object.Text(programme.FieldExternalID)
	if object.Has(programme.FieldExternalID) && named != id {
		return "", rest.Problems{programme.FieldExternalID: "Must be the externalId in the path, or omitted."}
	}
	return id, nil
}

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
	run func(programme.Writer, context.Context, uuid.UUID, []T) ([]programme.Result, error),
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
			object, err := rest.ParseObject(item)
			if err != nil {
				failures[i] = apierr.New(apierr.Invalid, "The item must be a JSON object.")
				continue
			}
			one, err := read(object)
			if failures[i] = err; err == nil {
				valid = append(valid, one)
			}
		}
		return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
			all, err := run(writer, ctx, r.WorkspaceID, valid)
			if err != nil {
				return rest.Answer{}, err
			}
			changed := 0
			for _, one := range all {
				if one.Err == nil {
					changed++
				}
			}
			web.AddRecords(ctx, changed)
			return answerItems(failures, all)
		}
	}
}

// answerItems returns the results of a batch in the order of its items. all has the results of the items without an
// error in failures.
func answerItems(failures []error, all []programme.Result) (rest.Answer, error) {
	results := make([]itemResult, len(failures))
	for i, failure := range failures {
		one := programme.Result{Err: failure}
		if failure == nil {
			one, all = all[0], all[1:]
		}
		switch {
		case one.Err != nil:
			refusal := apierr.Of(refusals.Of(one.Err))
			results[i] = itemResult{Status: refusal.Status(), Error: new(refusal.Detail())}
		case one.Created:
			results[i] = itemResult{Status: http.StatusCreated, ID: &one.Programme.ID}
		default:
			results[i] = itemResult{Status: http.StatusOK, ID: &one.Programme.ID}
		}
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
	id, err := web.ParseID(text)
	if err != nil {
		return programme.Move{}, programme.ErrNotFound
	}
	return programme.Move{ID: id, To: to}, nil
}

// Bounds of the imports that one process receives and accepts at once. Each takes about four times the size of its
// file in memory until Postgres has stored it.
const (
	importsAtOnce      = 6
	importsOfWorkspace = 2
	importWait         = 5 * time.Second // wait for a slot, before the body is read
	importWithin       = 5 * time.Second // time to receive the body, once there is a slot
)

// slots bounds how many imports are in memory, in total and per workspace. Other imports wait, in order of arrival,
// before their body is read; a workspace at its own bound does not block the others. It is safe for concurrent use.
type slots struct {
	imports *inflight.Requests[uuid.UUID] // by workspace
	maxWait time.Duration
}

func newSlots(total, perWorkspace int, maxWait time.Duration) slots {
	return slots{maxWait: maxWait, imports: inflight.New[uuid.UUID](inflight.Bounds{
		InFlight: math.MaxInt,
		AtOnce:   perWorkspace,
		Total:    total,
		Wait:     maxWait,
	})}
}

// upTo returns the Body that reads at most limit bytes, once the workspace has a slot. The write keeps the slot.
func (s slots) upTo(limit int64) gate.Body {
	return func(w http.ResponseWriter, r *http.Request, caller gate.Caller) ([]byte, func(), error) {
		leave, err := s.enter(r.Context(), caller.WorkspaceID)
		if err != nil {
			return nil, nil, err
		}
		// The time limit keeps a slow sender from occupying the slot.
		content, err := rest.ReadBodyWithin(w, r, limit, importWithin)
		if err != nil {
			leave()
			return nil, nil, err
		}
		return content, leave, nil
	}
}

// enter waits for a slot of the workspace. The caller must call leave when done. If no slot became free in time, or
// ctx ended, the error is an *apierr.Error of kind RateLimited.
func (s slots) enter(ctx context.Context, workspace uuid.UUID) (leave func(), err error) {
	turn, err := s.imports.Enter(ctx, workspace)
	if err != nil {
		return nil, &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: int(s.maxWait / time.Second),
			Message:    "Too many imports are being received. Send this import again after the time in Retry-After.",
		}
	}
	return sync.OnceFunc(func() { turn.Leave(false) }), nil
}
