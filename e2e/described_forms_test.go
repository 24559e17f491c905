package e2e

import (
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

const forms = "/v1/engage/forms"

// volunteerForm returns the body of a form that www.example.org may embed.
func volunteerForm() map[string]any {
	return map[string]any{
		"title": "Volunteer with us", "allowedOrigins": []string{"https://www.example.org"},
		"fields": []map[string]any{
			{"name": "email", "label": "Your e-mail address", "type": "email", "required": true},
		},
	}
}

// madeForm creates a form and returns its id and its public path.
func madeForm(t *testing.T, api harness.API) (id, public string) {
	t.Helper()
	form := api.JSON(t, http.MethodPost, forms, volunteerForm()).Wants(t, http.StatusCreated).Object(t)
	return form["id"].(string), "/v1/engage/public/forms/" + form["embedKey"].(string)
}

// The workspace's side of forms: each response that is described (contract, section 6).
func TestDescribed_WorkspaceForms(t *testing.T) {
	t.Parallel()
	p := enter(t)
	api := workspaceOf(p, p.NewWorkspace(t))
	keyed := api.With("Idempotency-Key", "form-1")
	made := keyed.JSON(t, http.MethodPost, forms, volunteerForm()).Wants(t, http.StatusCreated)
	again := keyed.JSON(t, http.MethodPost, forms, volunteerForm()).Wants(t, http.StatusCreated)
	if string(again.Body) != string(made.Body) {
		t.Errorf("the same key created another form:\n%s", again)
	}
	keyed.JSON(t, http.MethodPost, forms, map[string]any{"title": "Another"}).
		WantsNested(t, http.StatusConflict, "CONFLICT")
	api.JSON(t, http.MethodPost, forms, map[string]any{"title": ""}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")

	form := forms + "/" + made.Object(t)["id"].(string)
	tag := api.Get(t, form).Wants(t, http.StatusOK).Header.Get("ETag")
	closed := map[string]any{"enabled": false}
	changing := api.With("If-Match", tag).With("Idempotency-Key", "close")
	changing.JSON(t, http.MethodPatch, form, closed).Wants(t, http.StatusOK)
	changing.JSON(t, http.MethodPatch, form, map[string]any{"enabled": true}).
		WantsNested(t, http.StatusConflict, "CONFLICT")
	api.With("If-Match", tag).JSON(t, http.MethodPatch, form, closed).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	api.JSON(t, http.MethodPatch, form, map[string]any{"fields": []any{}}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")

	api.Get(t, forms+"?limit=1").Wants(t, http.StatusOK)
	api.Get(t, forms+"?limit=0").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	api.Get(t, form+"/submissions").Wants(t, http.StatusOK)
	api.Get(t, form+"/submissions?cursor=x").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

// A submission by a script of the allowed website.
func TestDescribed_Submissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := workspaceOf(p, p.NewWorkspace(t))
	id, form := madeForm(t, ws)
	page := p.API().With("Origin", "https://www.example.org")
	for _, path := range []string{form, form + "/submissions"} {
		page.With("Access-Control-Request-Method", "POST").Send(t, http.MethodOptions, path, "", "").
			Wants(t, http.StatusNoContent)
	}
	token := page.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"]
	submission := map[string]any{"submissionToken": token, "answers": map[string]any{"email": "ada@example.org"}}
	invalid := map[string]any{"submissionToken": token, "answers": map[string]any{}}
	page.JSON(t, http.MethodPost, form+"/submissions", invalid).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	accepted := page.JSON(t, http.MethodPost, form+"/submissions", submission).Wants(t, http.StatusAccepted).Object(t)
	page.JSON(t, http.MethodPost, form+"/submissions", submission).WantsNested(t, http.StatusConflict, "CONFLICT")
	page.Get(t, accepted["statusUrl"].(string)[len(p.BaseURL):]).Wants(t, http.StatusOK)
	sent := ws.Get(t, forms+"/"+id+"/submissions").Wants(t, http.StatusOK).Object(t)
	if len(sent["data"].([]any)) != 1 {
		t.Errorf("%v", sent)
	}
}

// The page of a form works without script. It shares its rate limit with submissions by script.
func TestDescribed_FormPage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	_, form := madeForm(t, workspaceOf(p, p.NewWorkspace(t)))
	api := p.API()
	token, _ := api.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"].(string)
	filled := url.Values{"submissionToken": {token}, "a.email": {"ada@example.org"}}
	api.Form(t, form+"/embed", url.Values{"submissionToken": {token}}).Wants(t, http.StatusBadRequest)
	time.Sleep(2200 * time.Millisecond) // faster submissions are rejected
	sent := api.Form(t, form+"/embed", filled).Wants(t, http.StatusSeeOther)
	api.Get(t, sent.Header.Get("Location")).Wants(t, http.StatusOK)
	api.Form(t, form+"/embed", filled).Wants(t, http.StatusConflict)
	var senders sync.WaitGroup // concurrent, to stay within a minute on slow machines
	for range 8 {
		senders.Go(func() {
			for range 15 {
				if _, err := api.Try(t, http.MethodPost, form+"/submissions", "application/json", "{}"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	api.JSON(t, http.MethodPost, form+"/submissions", "{}").WantsRetryAfter(t).
		WantsNested(t, http.StatusTooManyRequests, "RATE_LIMITED")
	api.Form(t, form+"/embed", filled).WantsRetryAfter(t).Wants(t, http.StatusTooManyRequests)
}
