package programmes

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// List handles GET: one page, newest first (spec 4.1).
func (e *Endpoint) List() http.Handler { return e.gate.Guard(perm.ProgrammesRead, e.prepareList) }

// prepareList reads the page in the round trip of the standing. A search runs only after the caller was admitted,
// since it may read every programme of the workspace.
func (e *Endpoint) prepareList(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := strictjson.UnknownParameters(r.URL.RawQuery, programme.Parameters()...); err != nil {
		return gate.Plan{}, err
	}
	query, err := programme.ReadQuery(r.URL.RawQuery, workspaceID, e.cursors)
	if err != nil {
		return gate.Plan{}, refusals.Of(err)
	}
	query.Into = func() programme.Sink {
		return listpage.New(encodeRecord).Only(query.Fields).Reserving(gate.ByteReserver(r.Context()))
	}
	var page programme.Page
	plan := gate.Plan{Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
		e.writePage(w, query, page)
		return nil
	}}
	if query.Filter.Search != "" {
		plan.Search = func(ctx context.Context, _ gate.Caller) (err error) {
			page, err = e.store.Page(ctx, query)
			return refusals.Of(err)
		}
		return plan, nil
	}
	plan.ReadStanding = func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
		s, page, err = e.store.StandingAndPage(ctx, q, query)
		return s, err
	}
	return plan, nil
}

// writePage writes data and meta; meta.nextCursor is present only if more pages may follow (spec 2.4).
func (e *Endpoint) writePage(w http.ResponseWriter, query programme.Query, page programme.Page) {
	found := page.Sink.(*listpage.Page[programme.Programme]) // by query.Into
	next := ""
	if page.More {
		last := found.Last()
		next = e.cursors.Seal(
			list.Position{CreatedAt: last.CreatedAt, ID: last.ID, Until: page.Until},
			query.WorkspaceID,
			query.Filter,
		)
	}
	found.Write(w, next)
}

func encodeRecord(b []byte, p programme.Programme) ([]byte, error) { return appendRecord(b, p), nil }

// Read handles GET of one programme, with the entity tag for If-Match.
func (e *Endpoint) Read() http.Handler { return e.gate.Guard(perm.ProgrammesRead, e.prepareRead) }

// prepareRead reads the programme in the round trip of the standing.
func (e *Endpoint) prepareRead(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
	if err := strictjson.UnknownParameters(r.URL.RawQuery); err != nil {
		return gate.Plan{}, err
	}
	id, err := records.PathID(r, programme.ErrNotFound)
	if err != nil {
		return gate.Plan{}, refusals.Of(err)
	}
	conditions, err := precondition.Read(r.Header)
	if err != nil {
		return gate.Plan{}, err
	}
	var found *programme.Programme
	return gate.Plan{
		ReadStanding: func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
			s, found, err = e.store.StandingAndProgramme(ctx, q, workspaceID, id)
			return s, err
		},
		Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
			if found == nil {
				return refusals.Of(programme.ErrNotFound)
			}
			serve := func() { idempotency.Answer{Status: http.StatusOK, Body: appendRecord(nil, *found)}.Serve(w) }
			return refusals.Of(conditions.ServeRead(w, found.Version, serve))
		},
	}, nil
}

type importState struct {
	ID       uuid.UUID              `json:"id"`
	Status   programme.ImportStatus `json:"status"`
	Imported int                    `json:"imported"`
	Errors   []programme.RowError   `json:"errors"`
}

// ReadImport handles GET of one import: accepted, processed or rejected. It needs the write permission only, since a
// caller who may write may see the result.
func (e *Endpoint) ReadImport() http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := records.PathID(r, programme.ErrNotFound)
		if err != nil {
			return refusals.Of(err)
		}
		i, err := e.store.Import(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		web.JSON(w, http.StatusOK, importState{i.ID, i.Status, i.Imported, i.Errors})
		return nil
	}
	return e.gate.Guard(perm.ProgrammesWrite, gate.Serving(serve))
}
