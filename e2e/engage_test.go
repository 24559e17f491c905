package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Contract, section 6: each rule for public forms, tested against the two binaries.

const website = "https://www.canal-lane.example"

// newForm creates a form in the workspace that one website may use, and returns it with its public path.
func newForm(t *testing.T, p *harness.Product, ws harness.TestWorkspace) (client.Form, string) {
	t.Helper()
	form, err := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms.Create(t.Context(), client.NewForm{
		Title: "Volunteer", AllowedOrigins: []string{website}, Fields: []client.Field{
			{Name: "name", Label: "Your name", Type: "text", Required: true},
			{Name: "email", Label: "E-mail", Type: "email", Required: true},
			{Name: "area", Label: "Where", Type: "select", Options: []string{"Kitchen", "Garden"}},
			{Name: "privacy", Label: "I agree that my answers are kept for a year.", Type: "consent", Required: true},
		},
	})
	mustRedacted(t, err)
	return form, "/v1/engage/public/forms/" + form.EmbedKey
}

func helper() map[string]any {
	return map[string]any{"name": "Ada Okafor", "email": "ada@example.org", "privacy": true}
}

func submissions(t *testing.T, p *harness.Product, form client.Form) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from resource.submissions where form_id = $1`, form.ID)
}

// The form works without script: on a phone it is corrected and sent, and shows its result.
func TestBrowser_SubmitsFormWithoutScript(t *testing.T) {
	p := inParallel(t)
	form, path := newForm(t, p, p.NewWorkspace(t))
	browser := newBrowser(t, p, harness.Telephone)
	browser.WithoutScript()
	browser.Open(p.BaseURL + path + "/embed")
	browser.Fill("#f0", "Ada Okafor")
	browser.ClickAndSee("button[type=submit]", ".alert")
	wantsText(t, "the page", browser, "Please correct 2 answers")
	browser.Fill("#f1", "ada@example.org")
	browser.Click("#f3")
	time.Sleep(2 * time.Second) // faster submissions are rejected
	browser.ClickAndSee("button[type=submit]", ".thanks")
	// The page reloads itself until it can show the result. During a reload there is no document for a moment.
	const text = `document.body ? document.body.innerText : ""`
	done := func() bool { return strings.Contains(harness.Evaluate[string](browser, text), "have processed them") }
	await.True(t, "the page shows the result", done)
	if n := submissions(t, p, form); n != 1 {
		t.Errorf("%d submissions stored, want 1", n)
	}
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("requests went to %v", hosts)
	}
}

// publicForm is the demo's form as a script on the allowed website uses it.
type publicForm struct {
	product *harness.Product
	path    string
}

func formOf(p *harness.Product) publicForm {
	return publicForm{p, "/v1/engage/public/forms/" + p.Demo.Engage.EmbedKey}
}

func (f publicForm) api() harness.API {
	return f.product.API().With("Origin", f.product.Demo.Engage.AllowedOrigin)
}

// submit sends answers with a new submission token.
func (f publicForm) submit(t *testing.T, answers map[string]any) harness.Answer {
	t.Helper()
	return submit(t, f.api(), f.path, answers)
}

// submit sends answers to the form at the path with a new submission token.
func submit(t *testing.T, api harness.API, path string, answers map[string]any) harness.Answer {
	t.Helper()
	token := api.Get(t, path).Wants(t, 200).Object(t)["submissionToken"]
	return api.JSON(t, "POST", path+"/submissions", map[string]any{"submissionToken": token, "answers": answers})
}

func volunteer() map[string]any {
	return map[string]any{"name": "Ada Okafor", "email": "ada@example.org", "help": "In the garden", "privacy": true}
}

// accepted submits answers, which must be accepted, and returns the path of the submission's status.
func (f publicForm) accepted(t *testing.T) string {
	t.Helper()
	body := f.submit(t, volunteer()).Wants(t, 202).Object(t)
	path, ours := strings.CutPrefix(body["statusUrl"].(string), f.product.BaseURL)
	if !ours || body["status"] != "accepted" || body["id"] == "" {
		t.Fatalf("%v", body)
	}
	return path
}

// ends waits for the final status of a submission.
func (f publicForm) ends(t *testing.T, path string) (status string) {
	t.Helper()
	await.True(t, "the submission is final", func() bool {
		status = f.api().Get(t, path).Wants(t, 200).Object(t)["status"].(string)
		return status != "accepted"
	})
	return status
}

// "An erasure of more than 1,000 submissions is 202; the form is closed and nothing of it can be read from then on (a
// supporter likewise)" (contract, section 6a).
func TestErasure_OfManySubmissionsIsDoneInTheBackground(t *testing.T) {
	p := inParallel(t)
	const many = 1500
	for _, c := range []struct{ what, method, path, body, gone string }{
		{"form", http.MethodDelete, "/forms/{form}", "", "/forms/{form}"},
		{"supporter", http.MethodDelete, "/supporters/{supporter}", "", "/supporters/{supporter}"},
		{"address", http.MethodPost, "/supporters/erase", `{"email":"ada@example.org"}`, "/supporters/{supporter}"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			ws := p.NewWorkspace(t)
			api := workspaceOf(p, ws)
			form, _ := newForm(t, p, ws)
			supporter := uuid.NewString()
			p.Database.Exec(t, `insert into resource.supporters (id, tenant_id, email)
				values ($1, $2, 'ada@example.org')`, supporter, ws.Workspace.ID)
			p.Database.Exec(t, `insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents,
					trapped, created_at, status, supporter_id, finished_at)
				select gen_random_uuid(), $1, $2, gen_random_uuid(), '{"email":"ada@example.org"}', '[]', false,
					now() - make_interval(secs => n), 'processed', $3, now()
				from generate_series(1, $4) n`, ws.Workspace.ID, form.ID, supporter, many)
			ids := strings.NewReplacer("{form}", form.ID, "{supporter}", supporter)
			accepted := api.Send(t, c.method, "/v1/engage"+ids.Replace(c.path), "application/json", c.body).
				Wants(t, http.StatusAccepted)
			erasure := accepted.Object(t)
			address, _ := erasure["statusUrl"].(string)
			status, ours := strings.CutPrefix(address, p.BaseURL)
			if !ours || erasure["status"] != "accepted" {
				t.Fatalf("the answer is %s", accepted)
			}
			accepted.WantsHeader(t, "Location", address)
			api.Get(t, "/v1/engage"+ids.Replace(c.gone)).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
			ended, err := api.Client(t).Forms.WaitForErasure(t.Context(), erasure["id"].(string))
			if err != nil || ended.DeletedSubmissions != many {
				t.Errorf("%+v %v", ended, err)
			}
			if s := api.Get(t, status).Wants(t, http.StatusOK).Object(t)["status"]; s != "processed" {
				t.Errorf("the status is %v", s)
			}
			if n := submissions(t, p, form); n != 0 {
				t.Errorf("%d submissions are left", n)
			}
		})
	}
}

// keyed sends a write twice with a new Idempotency-Key. It returns the first answer, which the second repeats.
func keyed(t *testing.T, api harness.API, method, path string, body any, want int) harness.Answer {
	t.Helper()
	api = api.With("Idempotency-Key", uuid.NewString())
	first := api.JSON(t, method, path, body).Wants(t, want).WantsHeader(t, "Idempotency-Replayed", "")
	again := api.JSON(t, method, path, body).Wants(t, want).WantsHeader(t, "Idempotency-Replayed", "true")
	if string(again.Body) != string(first.Body) {
		t.Errorf("the second response does not repeat the first:\n%s", again)
	}
	wantsKeyRefused(t, api, method, path)
	return first
}

// deleted is keyed for DELETE, whose first request has no body.
func deleted(t *testing.T, api harness.API, path string, want int) {
	t.Helper()
	api = api.With("Idempotency-Key", uuid.NewString())
	api.Send(t, http.MethodDelete, path, "", "").Wants(t, want)
	wantsKeyRefused(t, api, http.MethodDelete, path)
}

// wantsKeyRefused checks that the key of a write is refused with another body, and by the account API a malformed key.
func wantsKeyRefused(t *testing.T, api harness.API, method, path string) {
	t.Helper()
	other := api.JSON(t, method, path, `{"another":"body"}`)
	if !strings.HasPrefix(path, "/v1/account/") {
		other.WantsNested(t, http.StatusConflict, "CONFLICT")
		return
	}
	other.WantsFlat(t, http.StatusConflict, "conflict")
	api.With("Idempotency-Key", "two words").JSON(t, method, path, "{}").
		WantsFlat(t, http.StatusBadRequest, "invalid_request")
}

// The writes of programmes, each with its key. What they change, package app of resourceapi tests.
func TestProgrammes_WritesTakeEffectOnce(t *testing.T) {
	p, ws := inWorkspace(t)
	api := workspaceOf(p, ws)
	const external = programmes + "/external/crm-1"
	pantry := map[string]any{"name": "Spring pantry"}
	made := keyed(t, api, http.MethodPut, external, pantry, http.StatusCreated).Object(t)
	api.JSON(t, http.MethodPut, external, pantry).Wants(t, http.StatusOK)
	one := programmes + "/" + made["id"].(string)
	draft := keyed(t, api, http.MethodPost, programmes, pantry, http.StatusCreated).Object(t)["id"].(string)
	keyed(t, api, http.MethodPatch, one, map[string]any{"summary": "Food"}, http.StatusOK)
	active := map[string]any{"to": "active"}
	keyed(t, api, http.MethodPost, one+"/transitions", active, http.StatusOK)
	batch, moves := []any{pantry}, []any{map[string]any{"id": made["id"], "to": "archived"}}
	keyed(t, api, http.MethodPost, programmes+"/batch", map[string]any{"items": batch}, http.StatusOK)
	keyed(t, api, http.MethodPost, programmes+"/transitions", map[string]any{"items": moves}, http.StatusOK)
	outdated := api.With("If-Match", `"0"`)
	outdated.JSON(t, http.MethodPut, external, pantry).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	outdated.JSON(t, http.MethodPost, one+"/transitions", active).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	once := api.With("Idempotency-Key", "once")
	once.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nBook club\n").Wants(t, http.StatusAccepted)
	once.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nSwimming\n").
		WantsNested(t, http.StatusConflict, "CONFLICT")
	deleted(t, api, programmes+"/"+draft, http.StatusNoContent)
}

// What is erased of each, and what stays, TestErase_SubmissionFormAndSupporter of resourceapi tests.
func TestEngage_SubmissionsAndSupportersAreErased(t *testing.T) {
	p, ws := inWorkspace(t)
	api := workspaceOf(p, ws)
	form, path := newForm(t, p, ws)
	processed := func() string {
		t.Helper()
		sent := submit(t, p.API(), path, helper()).Wants(t, http.StatusAccepted).Object(t)
		one := "/v1/engage/submissions/" + sent["id"].(string)
		await.True(t, "the submission is processed", func() bool {
			return api.Get(t, one).Wants(t, http.StatusOK).Object(t)["status"] == "processed"
		})
		return one
	}
	first, second := processed(), processed()
	deleted(t, api, first, http.StatusNoContent)
	people := api.Get(t, "/v1/engage/supporters").Wants(t, http.StatusOK).Object(t)["data"].([]any)
	if len(people) != 1 {
		t.Fatalf("%d supporters", len(people))
	}
	person := "/v1/engage/supporters/" + people[0].(map[string]any)["id"].(string)
	if read := api.Get(t, person).Wants(t, http.StatusOK).Object(t); read["email"] != "ada@example.org" {
		t.Error("the supporter has another address")
	}
	deleted(t, api, person, http.StatusOK)
	api.Get(t, second).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	processed()
	erased := keyed(t, api, http.MethodPost, "/v1/engage/supporters/erase",
		map[string]any{"email": "ada@example.org"}, http.StatusOK).Object(t)
	if erased["deletedSubmissions"] != float64(1) {
		t.Errorf("%v", erased)
	}
	deleted(t, api, "/v1/engage/forms/"+form.ID, http.StatusOK)
	erasures := api.Client(t).Forms
	if e, err := erasures.EraseAddress(t.Context(), "unknown@example.org"); err != nil ||
		e != (client.Erasure{Status: client.ErasureProcessed}) {
		t.Errorf("an erasure of nothing is %+v %v", e, err)
	}
}
