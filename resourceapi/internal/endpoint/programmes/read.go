package programmes

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/unknown"
)

// List handles GET: one page, newest first (spec 4.1).
func (e *Endpoint) List() http.Handler { return e.gate.Guard(toRead, e.prepareList) }

// prepareList reads the page in the round trip of the standing. A search runs only after the caller was admitted,
// since it may read every programme of the workspace.
func (e *Endpoint) prepareList(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := unknown.Parameters(r.URL.RawQuery, "cursor", "limit", "status", "q", "updatedSince"); err != nil {
		return gate.Plan{}, err
	}
	query, err := programme.ReadQuery(r.URL.RawQuery, workspaceID, e.cursors)
	if err != nil {
		return gate.Plan{}, refusal(err)
	}
	query.Into = func() programme.Sink { return listpage.New(encodeRecord).Within(gate.Room(r.Context())) }
	var page programme.Page
	plan := gate.Plan{Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
		e.writePage(w, query, page)
		return nil
	}}
	if query.Filter.Search != "" {
		plan.Search = func(ctx context.Context, _ gate.Caller) (err error) {
			page, err = e.store.Page(ctx, query)
			return refusal(err)
		}
		return plan, nil
	}
	plan.Ask = func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
		s, page, err = e.store.StandingAndPage(ctx, q, query)
		return s, err
	}
	return plan, nil
}

// writePage writes data and meta; meta.nextCursor is present only if more pages may follow (spec 2.4).
func (e *Endpoint) writePage(w http.ResponseWriter, query programme.Query, page programme.Page) {
	records := page.Sink.(*listpage.Page[programme.Programme]) // by query.Into
	next := ""
	if page.More {
		last := records.Last()
		next = e.cursors.Seal(
			programme.Position{CreatedAt: last.CreatedAt, ID: last.ID, Until: page.Until},
			query.WorkspaceID,
			query.Filter,
		)
	}
	records.Write(w, next)
}

func encodeRecord(b []byte, p programme.Programme) ([]byte, error) { return appendRecord(b, p), nil }

func writeJSON(w http.ResponseWriter, status int, content []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(content) // a client that disconnected is not an error
}

// Read handles GET of one programme, with the entity tag for If-Match.
func (e *Endpoint) Read() http.Handler { return e.gate.Guard(toRead, e.prepareRead) }

// prepareRead reads the programme in the round trip of the standing.
func (e *Endpoint) prepareRead(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := unknown.Parameters(r.URL.RawQuery); err != nil {
		return gate.Plan{}, err
	}
	id, err := pathID(r)
	if err != nil {
		return gate.Plan{}, refusal(err)
	}
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return gate.Plan{}, err
	}
	var found *programme.Programme
	return gate.Plan{
		Ask: func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
			s, found, err = e.store.StandingAndProgramme(ctx, q, workspaceID, id)
			return s, err
		},
		Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
			if found == nil {
				return refusal(programme.ErrNotFound)
			}
			if !conditions.Holds(found.Version) {
				return refusal(programme.ErrStale)
			}
			w.Header().Set("ETag", precondition.Tag(found.Version))
			if conditions.Seen(found.Version) {
				w.WriteHeader(http.StatusNotModified)
				return nil
			}
			writeJSON(w, http.StatusOK, appendRecord(nil, *found))
			return nil
		},
	}, nil
}

type importState struct {
	ID       uuid.UUID              `json:"id"`
	Status   programme.ImportStatus `json:"status"`
	Imported int                    `json:"imported"`
	Errors   []programme.RowError   `json:"errors"`
}

// ReadImport handles GET of one import: accepted, processed or rejected.
func (e *Endpoint) ReadImport() http.Handler {
	return e.gate.Guard(toWrite, gate.Serving(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := pathID(r)
		if err != nil {
			return refusal(err)
		}
		i, err := e.store.Import(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusal(err)
		}
		web.JSON(w, http.StatusOK, importState{i.ID, i.Status, i.Imported, i.Errors})
		return nil
	}))
}
