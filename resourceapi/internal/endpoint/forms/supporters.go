package forms

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// Supporters handles GET of the workspace's supporters: one page, newest first.
func (e *Endpoint) Supporters() http.Handler {
	return records.List[engage.StoredSupporter]{
		Gate:     e.gate,
		Need:     perm.EngageReadSubmissions,
		Cursors:  e.cursors,
		Refusals: refusals,
		Name:     "supporters",
		Fields:   listquery.FieldsOf[engage.SupporterRecord](),
		Read:     e.store.Supporters,
		Record:   func(s engage.StoredSupporter) any { return s.Record() },
		Position: func(s engage.StoredSupporter) list.Position {
			return list.Position{CreatedAt: s.CreatedAt, ID: s.ID}
		},
	}.Handler()
}

// ReadSupporter handles GET of one supporter.
func (e *Endpoint) ReadSupporter() http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := records.PathID(r, engage.ErrNoSupporter)
		if err != nil {
			return refusals.Of(err)
		}
		s, err := e.store.Supporter(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		web.JSON(w, http.StatusOK, s.Record())
		return nil
	}
	return e.gate.Guard(perm.EngageReadSubmissions, gate.Serving(serve))
}

// ReadSubmission handles GET of one submission.
func (e *Endpoint) ReadSubmission() http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := records.PathID(r, engage.ErrNoSubmission)
		if err != nil {
			return refusals.Of(err)
		}
		s, err := e.store.Submission(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		web.JSON(w, http.StatusOK, s.Record())
		return nil
	}
	return e.gate.Guard(perm.EngageReadSubmissions, gate.Serving(serve))
}
