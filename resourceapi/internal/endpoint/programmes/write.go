package programmes

import (
	"context"
	"net/http"
	"net/url"

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
		id, err := writer.AcceptImport(ctx, r.WorkspaceID, r.User, text)
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
