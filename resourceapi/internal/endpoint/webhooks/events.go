package webhooks

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Events reads events.
type Events interface {
	// Events passes up to limit events after a sequence, oldest first, to take until it returns false. It returns the
	// sequence after which more may follow, or 0.
	Events(
		ctx context.Context, workspaceID uuid.UUID, after int64, subjects []string, limit int,
		take func(delivery.Event) bool,
	) (next int64, err error)
}

// EventRoutes returns the handler of GET /v1/events by path and method: what changed in the workspace within the last
// 30 days (contract, section 6a).
func EventRoutes(guard *gate.Gate, events Events, cursors *rest.Cursors) map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{"/v1/events": {"GET": listEvents(guard, events, cursors)}}
}

// listEvents needs membership alone: the response leaves out the events that the caller may not read.
func listEvents(guard *gate.Gate, events Events, cursors *rest.Cursors) http.Handler {
	return guard.Guard("", func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		wanted, after, err := readEventRange(r.URL.RawQuery, "events "+workspaceID.String(), cursors)
		if err != nil {
			return gate.Plan{}, rest.Refusals(nil).Of(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			read := func(page *rest.Page[delivery.Event]) (next string, err error) {
				subjects := webhook.ReadableSubjects(caller.Permissions)
				resume, err := events.Events(
					r.Context(), caller.WorkspaceID, after, subjects, wanted.Limit, page.Take)
				if err == nil && resume > 0 { // the list is ordered by sequence
					next = cursors.SealPosition(wanted.List, rest.Position{CreatedAt: time.UnixMicro(resume)})
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
