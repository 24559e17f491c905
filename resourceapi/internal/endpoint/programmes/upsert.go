package programmes

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/shared/idempotency"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// Put handles PUT of the programme with an external id: 201 if it is new, else 200.
func (e *Endpoint) Put() http.Handler { return e.write(records.UpTo(maxJSON), e.decodePut) }

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
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return nil, err
	}
	wanted.New.ExternalID, wanted.Check = id, conditions.CheckChange
	return func(ctx context.Context, writer programme.Writer) (idempotency.Answer, error) {
		all, err := writer.Upsert(ctx, caller.WorkspaceID, []programme.Upsert{wanted})
		if err != nil {
			return idempotency.Answer{}, err
		}
		if all[0].Err != nil {
			return idempotency.Answer{}, all[0].Err
		}
		if !all[0].Created {
			return answerWith(http.StatusOK, all[0].Programme), nil
		}
		answer := answerWith(http.StatusCreated, all[0].Programme)
		answer.Location = e.collection + "/" + all[0].Programme.ID.String()
		return answer, nil
	}, nil
}

// pathExternalID reads the external id of the path, which the body may repeat. The path has it percent-encoded.
func pathExternalID(r *http.Request, object strictjson.Object) (string, error) {
	id, err := url.PathUnescape(r.PathValue("externalId"))
	if err != nil {
		return "", invalid.Fields{programme.FieldExternalID: "Must be URL-encoded."}
	}
	if message := programme.CheckExternalID(id); message != "" {
		return "", invalid.Fields{programme.FieldExternalID: message}
	}
	named, _ := object.Text(programme.FieldExternalID)
	if object.Has(programme.FieldExternalID) && named != id {
		return "", invalid.Fields{programme.FieldExternalID: "Must be the externalId in the path, or omitted."}
	}
	return id, nil
}

// readUpsert reads the members of POST. For an existing programme they are a change: omitted ones stay unchanged.
func readUpsert(o strictjson.Object) (programme.Upsert, error) {
	details, err := readDetails(o)
	if err != nil {
		return programme.Upsert{}, err
	}
	found := invalid.Fields{} // every problem was found by readDetails
	wanted := programme.Upsert{New: details, Change: programme.Change{
		Name:     readText(o, programme.FieldName, found),
		Summary:  readText(o, programme.FieldSummary, found),
		StartsOn: readDate(o, programme.FieldStartsOn, found),
		EndsOn:   readDate(o, programme.FieldEndsOn, found),
	}}
	if o.Has(programme.FieldStatus) {
		wanted.Status = &details.Status
	}
	return wanted, nil
}

// nestedError returns the error of an item, as error of the nested shape.
func nestedError(content []byte) (json.RawMessage, error) {
	var shape struct {
		Error json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(content, &shape)
	return shape.Error, err
}
