package programmes

import (
	"cmp"
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
	"github.com/almonerhq/almoner/resourceapi/internal/unknown"
)

// Bounds of request bodies, in bytes.
const (
	maxJSON = 64 << 10
	maxCSV  = 2 << 20
)

// An effect runs a write in its transaction and returns the answer.
type effect func(context.Context, programme.Writer) (idempotency.Answer, error)

// A decoder parses a request whose body is content. It does no I/O.
type decoder func(r *http.Request, caller gate.Caller, content []byte) (effect, error)

// Create handles POST: 201 with the new programme.
func (e *Endpoint) Create() http.Handler { return e.write(nil, maxJSON, e.decodeCreate) }

// Change handles PATCH of one programme: 200, or 412 if If-Match names another version.
func (e *Endpoint) Change() http.Handler { return e.write(nil, maxJSON, e.decodeChange) }

// Move handles POST …/transitions: 200 with the programme, or 409.
func (e *Endpoint) Move() http.Handler { return e.write(nil, maxJSON, e.decodeMove) }

// Import handles POST …/imports: 202 with the URL of the import's status.
func (e *Endpoint) Import() http.Handler { return e.write(e.imports, maxCSV, e.decodeImport) }

// write handles an admitted write: it reads the body, then the Idempotency-Key, then decodes the request. An invalid
// request may still repeat an answered one, so its mistake is returned only after the key was looked up. If atOnce is
// not nil, the body is read once the workspace has a slot.
func (e *Endpoint) write(atOnce *slots, limit int64, decode decoder) http.Handler {
	return e.gate.Guard(
		toWrite,
		gate.ServingAnyQuery(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			leave, err := atOnce.enter(r.Context(), caller.WorkspaceID)
			if err != nil {
				return err
			}
			defer leave()
			content, err := atOnce.read(w, r, limit)
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
			if mistake != nil {
				do = func(context.Context, programme.Writer) (idempotency.Answer, error) {
					return idempotency.Answer{}, mistake
				}
			}
			answer, err := e.store.Once(r.Context(), key, do)
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
	writeJSON(w, answer.Status, answer.Body)
}

func (e *Endpoint) decodeCreate(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := readJSON(r, content)
	if err != nil {
		return nil, err
	}
	details, err := readDetails(object)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		p, err := writer.Create(ctx, caller.WorkspaceID, details)
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer := answerWith(http.StatusCreated, p)
		answer.Location = e.collection + "/" + p.ID.String()
		return answer, nil
	}, nil
}

func (e *Endpoint) decodeChange(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := readJSON(r, content)
	if err != nil {
		return nil, err
	}
	change, err := readChange(object)
	if err != nil {
		return nil, err
	}
	return replacing(r, caller.WorkspaceID, change.Apply)
}

func (e *Endpoint) decodeMove(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := readJSON(r, content)
	if err != nil {
		return nil, err
	}
	to, err := readMove(object)
	if err != nil {
		return nil, err
	}
	return replacing(r, caller.WorkspaceID, func(p programme.Programme) (programme.Programme, error) {
		if !p.Status.CanBecome(to) {
			return p, programme.ErrTransition
		}
		p.Status = to
		return p, nil
	})
}

// replacing edits the programme of the path if the request's conditions allow its version.
func replacing(
	r *http.Request,
	workspaceID uuid.UUID,
	edit func(programme.Programme) (programme.Programme, error),
) (effect, error) {
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return nil, err
	}
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		p, err := writer.Replace(ctx, workspaceID, id, func(p programme.Programme) (programme.Programme, error) {
			if !conditions.Holds(p.Version) || conditions.Seen(p.Version) {
				return p, programme.ErrStale
			}
			return edit(p)
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
		return answerWith(http.StatusOK, p), nil
	}, nil
}

func (e *Endpoint) decodeImport(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	if err := strictjson.CheckType(r.Header, "text/csv"); err != nil {
		return nil, err
	}
	text := string(content)
	if err := programme.CheckImport(text); err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		id, err := writer.AcceptImport(ctx, caller.WorkspaceID, caller.User, text)
		if err != nil {
			return idempotency.Answer{}, err
		}
		status := e.collection + "/imports/" + id.String()
		content, err := web.EncodeJSON(
			map[string]any{"id": id, "status": programme.ImportAccepted, "statusUrl": status},
		)
		return idempotency.Answer{Status: http.StatusAccepted, Location: status, Body: content}, err
	}, nil
}

func readJSON(r *http.Request, content []byte) (strictjson.Object, error) {
	if err := strictjson.CheckType(r.Header, "application/json", "application/merge-patch+json"); err != nil {
		return nil, err
	}
	return strictjson.ReadObject(content)
}

func answerWith(status int, p programme.Programme) idempotency.Answer {
	return idempotency.Answer{Status: status, ETag: precondition.Tag(p.Version), Body: appendRecord(nil, p)}
}
