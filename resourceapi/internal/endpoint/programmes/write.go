package programmes

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"

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
	return gate.Writes[programme.Writer]{
		Gate:     e.Gate,
		Need:     perm.ProgrammesWrite,
		Once:     e.Store.Once,
		Refusals: refusals,
	}.Handler(body, decode)
}

// decodeCreate parses POST: 201 with the new programme.
func (e *Endpoint) decodeCreate(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := readJSON(r, content)
	if err != nil {
		return nil, err
	}
	details, err := readDetails(object)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		p, err := writer.Create(ctx, caller.WorkspaceID, details)
		if err != nil {
			return rest.Answer{}, err
		}
		return e.created(p), nil
	}, nil
}

// decodeChange parses PATCH of one programme: 200, or 412 if If-Match names another version.
func decodeChange(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
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
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		if err := writer.LockExternalIDs(ctx, caller.WorkspaceID); err != nil {
			return rest.Answer{}, err
		}
		return replace(ctx, writer)
	}, nil
}

// decodeMove parses POST …/transitions: 200 with the programme, or 409.
func decodeMove(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
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
	r *http.Request, workspaceID uuid.UUID, edit func(programme.Programme) (programme.Programme, error),
) (effect, error) {
	conditions, err := rest.ReadConditions(r.Header)
	if err != nil {
		return nil, err
	}
	id, err := gate.PathID(r, programme.ErrNotFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		p, err := writer.Replace(ctx, workspaceID, id, func(p programme.Programme) (programme.Programme, error) {
			if err := conditions.CheckChange(p.Version); err != nil {
				return p, err
			}
			return edit(p)
		})
		if err != nil {
			return rest.Answer{}, err
		}
		return answerWith(http.StatusOK, p), nil
	}, nil
}

// decodeImport parses POST …/imports: 202 with the URL of the import's status.
func (e *Endpoint) decodeImport(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	if err := rest.CheckType(r.Header, "text/csv"); err != nil {
		return nil, err
	}
	text := string(content)
	if err := programme.CheckImport(text); err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		id, err := writer.AcceptImport(ctx, caller.WorkspaceID, caller.User, text)
		if err != nil {
			return rest.Answer{}, err
		}
		status := e.collection + "/imports/" + id.String()
		accepted := map[string]any{"id": id, "status": programme.ImportAccepted, "statusUrl": status}
		answer, err := rest.JSON(http.StatusAccepted, accepted, nil)
		answer.Location = status
		return answer, err
	}, nil
}

func readJSON(r *http.Request, content []byte) (rest.Object, error) {
	return rest.ParseBody(r.Header, content, "application/json", "application/merge-patch+json")
}

func answerWith(status int, p programme.Programme) rest.Answer {
	return rest.Answer{Status: status, ETag: rest.Tag(p.Version), Body: appendRecord(nil, p)}
}

func (e *Endpoint) created(p programme.Programme) rest.Answer {
	answer := answerWith(http.StatusCreated, p)
	answer.Location = e.collection + "/" + p.ID.String()
	return answer
}

// decodePut parses PUT of the programme with an external id: 201 if it is new, else 200.
func (e *Endpoint) decodePut(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := readJSON(r, content)
	if err != nil {
		return nil, err
	}
	id, err := pathExternalID(r, object)
	if err != nil {
		return nil, err
	}
	wanted, err := readUpsert(object)
	if err != nil {
		return nil, err
	}
	conditions, err := rest.ReadConditions(r.Header)
	if err != nil {
		return nil, err
	}
	wanted.New.ExternalID, wanted.Check = id, conditions.CheckChange
	return func(ctx context.Context, writer programme.Writer) (rest.Answer, error) {
		all, err := writer.Upsert(ctx, caller.WorkspaceID, []programme.Upsert{wanted})
		if err != nil {
			return rest.Answer{}, err
		}
		if all[0].Err != nil {
			return rest.Answer{}, all[0].Err
		}
		if !all[0].Created {
			return answerWith(http.StatusOK, all[0].Programme), nil
		}
		return e.created(all[0].Programme), nil
	}, nil
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
