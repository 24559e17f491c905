package publicforms

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// publicForm is a form as the public sees it.
type publicForm struct {
	Title           string         `json:"title"`
	Fields          []engage.Field `json:"fields"`
	SubmissionToken string         `json:"submissionToken"`
}

// Definition handles GET of a form: its fields, and a token for a submission.
func (e *Endpoint) Definition() http.Handler {
	return e.handle(func(w http.ResponseWriter, r *http.Request) error {
		form, err := e.find(r)
		if err != nil {
			return err
		}
		if err := checkOpen(form); err != nil {
			return err
		}
		if err := allowOrigin(w, r, form.Form); err != nil {
			return err
		}
		if err := strictjson.UnknownParameters(r.URL.RawQuery); err != nil {
			return err
		}
		web.JSON(w, http.StatusOK, publicForm{form.Title, form.Fields, e.Tokens.ForSubmission(form.ID, e.Now())})
		return nil
	})
}

// submissionState is the state of a submission, as its sender sees it.
type submissionState struct {
	ID      uuid.UUID     `json:"id"`
	Status  engage.Status `json:"status"`
	Reasons []string      `json:"reasons"`
}

// Status handles GET of a submission for a caller with its token. Other callers do not learn whether it exists.
func (e *Endpoint) Status() http.Handler {
	return e.handle(func(w http.ResponseWriter, r *http.Request) error {
		s, err := e.submission(r, r.PathValue("id"))
		if errors.Is(err, engage.ErrNotFound) {
			return apierr.New(
				apierr.NotFound,
				"The submission does not exist, or its status token is not valid or is older than a day.",
			)
		}
		if err != nil {
			return err
		}
		form, err := e.Store.Form(r.Context(), s.WorkspaceID, s.Form)
		if err != nil {
			return err
		}
		if err := allowOrigin(w, r, form); err != nil {
			return err
		}
		if err := strictjson.UnknownParameters(r.URL.RawQuery, "token"); err != nil {
			return err
		}
		web.JSON(w, http.StatusOK, submissionState{s.ID, s.Status, s.Reasons})
		return nil
	})
}

// submission returns the submission with the given id if the query's token is for it.
func (e *Endpoint) submission(r *http.Request, text string) (engage.Submission, error) {
	id, err := identity.Parse(text)
	if err != nil {
		return engage.Submission{}, engage.ErrNotFound
	}
	workspaceID, allowed := e.Tokens.ReadStatus(r.URL.Query().Get("token"), id, e.Now())
	if !allowed {
		return engage.Submission{}, engage.ErrNotFound
	}
	return e.Store.SubmissionStatus(r.Context(), workspaceID, id)
}
