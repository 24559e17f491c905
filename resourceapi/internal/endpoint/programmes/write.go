package programmes

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// Bounds of request bodies, in bytes.
const (
	maxJSON = 64 << 10
	maxCSV  = 2 << 20
)

type effect = records.Effect[programme.Writer]

// Create handles POST: 201 with the new programme.
func (e *Endpoint) Create() http.Handler { return e.write(records.UpTo(maxJSON), e.decodeCreate) }

// Change handles PATCH of one programme: 200, or 412 if If-Match names another version.
func (e *Endpoint) Change() http.Handler { return e.write(records.UpTo(maxJSON), e.decodeChange) }

// Move handles POST …/transitions: 200 with the programme, or 409.
func (e *Endpoint) Move() http.Handler { return e.write(records.UpTo(maxJSON), e.decodeMove) }

// Delete handles DELETE of a draft: 204, or 409 for another programme.
func (e *Endpoint) Delete() http.Handler { return e.write(records.UpTo(maxJSON), e.decodeDelete) }

func (e *Endpoint) decodeDelete(r *http.Request, caller gate.Caller, _ []byte) (effect, error) {
	id, err := records.PathID(r, programme.ErrNotFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		err := writer.DeleteDraft(ctx, caller.WorkspaceID, id, caller.User)
		return idempotency.Answer{Status: http.StatusNoContent}, err
	}, nil
}

// Import handles POST …/imports: 202 with the URL of the import's status.
func (e *Endpoint) Import() http.Handler { return e.write(e.imports.upTo(maxCSV), e.decodeImport) }

func (e *Endpoint) write(body records.Body, decode records.Decoder[programme.Writer]) http.Handler {
	return records.Writes[programme.Writer]{
		Gate:     e.gate,
		Need:     perm.ProgrammesWrite,
		Once:     e.store.Once,
		Refusals: refusals,
	}.Handler(body, decode)
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
	replace, err := replacing(r, caller.WorkspaceID, change.Apply)
	if err != nil || change.ExternalID == nil {
		return replace, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		if err := writer.LockExternalIDs(ctx, caller.WorkspaceID); err != nil {
			return idempotency.Answer{}, err
		}
		return replace(ctx, writer)
	}, nil
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
	id, err := records.PathID(r, programme.ErrNotFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		p, err := writer.Replace(ctx, workspaceID, id, func(p programme.Programme) (programme.Programme, error) {
			if err := conditions.CheckChange(p.Version); err != nil {
				return p, err
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
	return strictjson.ReadBody(r.Header, content, "application/json", "application/merge-patch+json")
}

func answerWith(status int, p programme.Programme) idempotency.Answer {
	return idempotency.Answer{Status: status, ETag: precondition.Tag(p.Version), Body: appendRecord(nil, p)}
}
