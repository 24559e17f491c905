package forms

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// formRecord is a form as returned to its workspace.
type formRecord struct {
	ID             uuid.UUID      `json:"id"`
	EmbedKey       string         `json:"embedKey"`
	Title          string         `json:"title"`
	Introduction   string         `json:"introduction"`
	ThankYou       string         `json:"thankYou"`
	Lang           string         `json:"lang"`
	Fields         []engage.Field `json:"fields"`
	AllowedOrigins []string       `json:"allowedOrigins"`
	Enabled        bool           `json:"enabled"`
	CreatedAt      jsontime.Time  `json:"createdAt"`

	RetentionMonths int `json:"retentionMonths"`
}

func recordOf(f engage.Form) formRecord {
	return formRecord{
		ID:              f.ID,
		EmbedKey:        f.EmbedKey,
		Title:           f.Title,
		Introduction:    f.Introduction,
		ThankYou:        f.ThankYou,
		Lang:            f.Lang,
		Fields:          f.Fields,
		AllowedOrigins:  f.AllowedOrigins,
		Enabled:         f.Enabled,
		CreatedAt:       jsontime.Time(f.CreatedAt),
		RetentionMonths: f.RetentionMonths,
	}
}

// List handles GET: one page of the workspace's forms, newest first.
func (e *Endpoint) List() http.Handler {
	return records.List[engage.Form]{
		Gate:     e.gate,
		Need:     perm.EngageReadForms,
		Cursors:  e.cursors,
		Refusals: refusals,
		Name:     "forms",
		Fields:   listquery.FieldsOf[formRecord](),
		Read:     e.store.Forms,
		Record:   func(f engage.Form) any { return recordOf(f) },
		Position: func(f engage.Form) list.Position { return list.Position{CreatedAt: f.CreatedAt, ID: f.ID} },
	}.Handler()
}

// Read handles GET of one form, with the entity tag for If-Match.
func (e *Endpoint) Read() http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := records.PathID(r, engage.ErrNotFound)
		if err != nil {
			return refusals.Of(err)
		}
		conditions, err := precondition.Read(r.Header)
		if err != nil {
			return err
		}
		form, err := e.store.Form(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusals.Of(err)
		}
		write := func() { web.JSON(w, http.StatusOK, recordOf(form)) }
		return refusals.Of(conditions.ServeRead(w, form.Version, write))
	}
	return e.gate.Guard(perm.EngageReadForms, gate.Serving(serve))
}

// Submissions handles GET of one form's submissions: one page, newest first.
func (e *Endpoint) Submissions() http.Handler {
	return records.List[engage.Submission]{
		Gate:     e.gate,
		Need:     perm.EngageReadSubmissions,
		Cursors:  e.cursors,
		Refusals: refusals,
		Name:     "submissions",
		Owner:    func(r *http.Request) (uuid.UUID, error) { return records.PathID(r, engage.ErrNotFound) },
		// The form belongs to the caller's workspace, so its submissions do too.
		Find: func(ctx context.Context, workspaceID, form uuid.UUID) error {
			_, err := e.store.Form(ctx, workspaceID, form)
			return err
		},
		Fields:  listquery.FieldsOf[engage.SubmissionRecord](),
		Filters: list.Filters{Updated: true, Statuses: engage.Statuses(), Created: true},
		ReadOf:  e.store.Submissions,
		Record:  func(s engage.Submission) any { return s.Record() },
		Position: func(s engage.Submission) list.Position {
			return list.Position{CreatedAt: s.CreatedAt, ID: s.ID}
		},
	}.Handler()
}
