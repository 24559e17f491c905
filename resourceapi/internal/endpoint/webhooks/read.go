package webhooks

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// record is an endpoint as returned to the workspace.
type record struct {
	ID             uuid.UUID       `json:"id"`
	URL            string          `json:"url"`
	Types          []string        `json:"types"`
	PersonalData   bool            `json:"includePersonalData"`
	Enabled        bool            `json:"enabled"`
	DisabledReason *webhook.Reason `json:"disabledReason"`
	FailingSince   *jsontime.Time  `json:"failingSince"`
	CreatedAt      jsontime.Time   `json:"createdAt"`
}

func recordOf(e webhook.Endpoint) record {
	r := record{
		ID:           e.ID,
		URL:          e.URL,
		Types:        e.Types,
		PersonalData: e.PersonalData,
		Enabled:      e.Enabled,
		FailingSince: jsontime.Pointer(e.FailingSince),
		CreatedAt:    jsontime.Time(e.CreatedAt),
	}
	if !e.Enabled {
		r.DisabledReason = &e.Reason
	}
	return r
}

// List handles GET: one page of the workspace's endpoints, newest first.
func (e *Endpoint) List() http.Handler {
	return records.List[webhook.Endpoint]{
		Gate:     e.Gate,
		Need:     perm.AccountAPIAccess,
		Cursors:  e.Cursors,
		Refusals: refusals,
		Name:     "webhooks",
		Fields:   listquery.FieldsOf[record](),
		Read:     e.Store.Webhooks,
		Record:   func(e webhook.Endpoint) any { return recordOf(e) },
		Position: func(e webhook.Endpoint) list.Position { return list.Position{CreatedAt: e.CreatedAt, ID: e.ID} },
	}.Handler()
}

// Read handles GET of one endpoint.
func (e *Endpoint) Read() http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := records.PathID(r, webhook.ErrNotFound)
		if err != nil {
			return refusals.Of(err)
		}
		found, err := e.Store.Webhook(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		web.JSON(w, http.StatusOK, recordOf(found))
		return nil
	}
	return e.Gate.Guard(perm.AccountAPIAccess, gate.Serving(serve))
}
