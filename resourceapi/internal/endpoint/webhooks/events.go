package webhooks

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// events handles GET /v1/events: what changed in the workspace within the last 30 days (contract, section 6a). It needs
// membership alone: the response leaves out the events that the caller may not read.
func (e *Endpoint) events() http.Handler {
	return e.Gate.Guard("", func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		wanted, after, err := readEventRange(r.URL.RawQuery, "events "+workspaceID.String(), e.Cursors)
		if err != nil {
			return gate.Plan{}, rest.Refusals(nil).Of(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			read := func(page *rest.Page[delivery.Event]) (next string, err error) {
				subjects := webhook.ReadableSubjects(caller.Permissions)
				resume, err := e.Store.Events(
					r.Context(), caller.WorkspaceID, after, subjects, wanted.Limit, page.Take)
				if err == nil && resume > 0 { // the list is ordered by sequence
					next = e.Cursors.SealPosition(wanted.List, rest.Position{CreatedAt: time.UnixMicro(resume)})
				}
				return next, err
			}
			return gate.WritePage(w, r, caller, gate.Itself[delivery.Event], wanted.Fields, read)
		}}, nil
	})
}

// readEventRange reads the query parameters after, limit, cursor and fields. A cursor continues behind the
// event that it names, and never at or before after.
func readEventRange(raw, name string, cursors *rest.Cursors) (wanted rest.Range, after int64, err error) {
	if err := rest.UnknownParameters(raw, "after", "limit", "cursor", "fields"); err != nil {
		return rest.Range{}, 0, err
	}
	wanted, err = rest.ReadRange(raw, name, cursors, rest.FieldsOf[delivery.Event](), rest.Filters{})
	if err != nil {
		return rest.Range{}, 0, err
	}
	p := rest.ReadParameters(raw, "after")
	if text, given := p.Text("after"); given {
		after, err = strconv.ParseInt(text, 10, 64)
		if err != nil || after < 0 || text[0] == '+' || text[0] == '-' {
			p.Problems["after"] = "Must be the sequence of an event, or 0."
		}
	}
	if wanted.After != nil {
		after = max(after, wanted.After.CreatedAt.UnixMicro())
	}
	return wanted, after, p.Problems.OrNil()
}
