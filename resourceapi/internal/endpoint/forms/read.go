package forms

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/precondition"
	"github.com/almonerhq/almoner/resourceapi/internal/unknown"
)

// formRecord is a form as returned to its workspace.
type formRecord struct {
	ID             uuid.UUID      `json:"id"`
	EmbedKey       string         `json:"embedKey"`
	Title          string         `json:"title"`
	Fields         []engage.Field `json:"fields"`
	AllowedOrigins []string       `json:"allowedOrigins"`
	Enabled        bool           `json:"enabled"`
	CreatedAt      jsontime.Time  `json:"createdAt"`
}

func recordOf(f engage.Form) formRecord {
	return formRecord{f.ID, f.EmbedKey, f.Title, f.Fields, f.AllowedOrigins, f.Enabled, jsontime.Time(f.CreatedAt)}
}

// List handles GET: one page of the workspace's forms, newest first.
func (e *Endpoint) List() http.Handler {
	return e.gate.Guard(toRead, func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		if err := unknown.Parameters(r.URL.RawQuery, "cursor", "limit"); err != nil {
			return gate.Plan{}, err
		}
		name := "forms of " + workspaceID.String()
		wanted, err := engage.ReadRange(r.URL.RawQuery, name, e.cursors)
		if err != nil {
			return gate.Plan{}, refusal(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			page := listpage.Encoded(recordOf).Within(gate.Room(r.Context()))
			more := false
			err := gate.ReadInTurn(r.Context(), func() (err error) {
				more, err = e.store.Forms(r.Context(), caller.WorkspaceID, wanted, page.Take)
				return err
			})
			if err := cmp.Or(err, page.Err()); err != nil {
				return refusal(err)
			}
			next := ""
			if more {
				last := page.Last()
				next = e.cursors.Seal(name, engage.Place{CreatedAt: last.CreatedAt, ID: last.ID})
			}
			page.Write(w, next)
			return nil
		}}, nil
	})
}

// Read handles GET of one form, with the entity tag for If-Match.
func (e *Endpoint) Read() http.Handler {
	return e.gate.Guard(toRead, gate.Serving(func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		id, err := pathID(r)
		if err != nil {
			return refusal(err)
		}
		conditions, err := precondition.Read(r.Header)
		if err != nil {
			return err
		}
		form, err := e.store.Form(r.Context(), caller.WorkspaceID, id)
		if err != nil {
			return refusal(err)
		}
		if !conditions.Holds(form.Version) {
			return refusal(engage.ErrStale)
		}
		w.Header().Set("ETag", precondition.Tag(form.Version))
		if conditions.Seen(form.Version) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		web.JSON(w, http.StatusOK, recordOf(form))
		return nil
	}))
}

// submissionRecord is a submission as returned to its workspace.
type submissionRecord struct {
	ID          uuid.UUID             `json:"id"`
	Status      engage.Status         `json:"status"`
	Reasons     []string              `json:"reasons"`
	Answers     json.RawMessage       `json:"answers"`
	Consents    []engage.ConsentGiven `json:"consents"`
	SupporterID *uuid.UUID            `json:"supporterId"`
	CreatedAt   jsontime.Time         `json:"createdAt"`
	UpdatedAt   jsontime.Time         `json:"updatedAt"`
	FinishedAt  *jsontime.Time        `json:"finishedAt"`
}

func submissionRecordOf(s engage.Submission) submissionRecord {
	return submissionRecord{
		ID:          s.ID,
		Status:      s.Status,
		Reasons:     s.Reasons,
		Answers:     s.Kept,
		Consents:    s.Consents,
		SupporterID: s.Supporter,
		CreatedAt:   jsontime.Time(s.CreatedAt),
		UpdatedAt:   jsontime.Time(s.UpdatedAt()),
		FinishedAt:  jsontime.Pointer(s.FinishedAt),
	}
}

// Submissions handles GET of one form's submissions: one page, newest first.
func (e *Endpoint) Submissions() http.Handler {
	return e.gate.Guard(toReadSubmissions, func(r *http.Request, _ uuid.UUID) (gate.Plan, error) {
		if err := unknown.Parameters(r.URL.RawQuery, "cursor", "limit", "updatedSince"); err != nil {
			return gate.Plan{}, err
		}
		id, badID := pathID(r)
		wanted, err := engage.ReadRange(r.URL.RawQuery, "submissions of "+id.String(), e.cursors, "updatedSince")
		if err != nil {
			return gate.Plan{}, refusal(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			if badID != nil {
				return refusal(badID)
			}
			// The form belongs to the caller's workspace, so its submissions do too.
			if _, err := e.store.Form(r.Context(), caller.WorkspaceID, id); err != nil {
				return refusal(err)
			}
			page := listpage.Encoded(submissionRecordOf).Within(gate.Room(r.Context()))
			var end engage.SubmissionPage
			err := gate.ReadInTurn(r.Context(), func() (err error) {
				end, err = e.store.Submissions(r.Context(), id, wanted, page.Take)
				return err
			})
			if err := cmp.Or(err, page.Err()); err != nil {
				return refusal(err)
			}
			next := ""
			if end.More {
				last := page.Last()
				next = e.cursors.Seal(
					wanted.List,
					engage.Place{CreatedAt: last.CreatedAt, ID: last.ID, Until: end.Until},
				)
			}
			page.Write(w, next)
			return nil
		}}, nil
	})
}
