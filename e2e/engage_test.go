package e2e

import (
	"net/http"
	"slices"
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
	browser.Click("button[type=submit]")
	browser.See(".alert")
	wantsText(t, "the page", browser, "Please correct 2 answers")
	browser.Fill("#f1", "ada@example.org")
	browser.Click("#f3")
	time.Sleep(2 * time.Second) // faster submissions are rejected
	browser.Click("button[type=submit]")
	browser.See(".thanks")
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
	for what, erase := range map[string]func(api harness.API, form, supporter string) harness.Answer{
		"form": func(api harness.API, form, _ string) harness.Answer {
			return api.Send(t, http.MethodDelete, "/v1/engage/forms/"+form, "", "")
		},
		"supporter": func(api harness.API, _, supporter string) harness.Answer {
			return api.Send(t, http.MethodDelete, "/v1/engage/supporters/"+supporter, "", "")
		},
		"address": func(api harness.API, _, _ string) harness.Answer {
			return api.JSON(t, http.MethodPost, "/v1/engage/supporters/erase", `{"email":"ada@example.org"}`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ws := p.NewWorkspace(t)
			api := p.In(ws.Workspace, ws.Token)
			form, _ := newForm(t, p, ws)
			supporter := uuid.NewString()
			p.Database.Exec(t, `insert into resource.supporters (id, tenant_id, email)
				values ($1, $2, 'ada@example.org')`, supporter, ws.Workspace.ID)
			p.Database.Exec(t, `insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents,
					trapped, created_at, status, supporter_id, finished_at)
				select gen_random_uuid(), $1, $2, gen_random_uuid(), '{"email":"ada@example.org"}', '[]', false,
					now() - make_interval(secs => n), 'processed', $3, now()
				from generate_series(1, $4) n`, ws.Workspace.ID, form.ID, supporter, many)
			accepted := erase(api, form.ID, supporter).Wants(t, http.StatusAccepted)
			address, _ := accepted.Object(t)["statusUrl"].(string)
			status, ours := strings.CutPrefix(address, p.BaseURL)
			if !ours || accepted.Object(t)["status"] != "accepted" {
				t.Fatalf("the answer is %s", accepted)
			}
			accepted.WantsHeader(t, "Location", address)
			gone := map[bool]string{true: "/v1/engage/forms/" + form.ID, false: "/v1/engage/supporters/" + supporter}
			api.Get(t, gone[what == "form"]).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
			forms := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms
			ended, err := forms.WaitForErasure(t.Context(), accepted.Object(t)["id"].(string))
			if err != nil || ended.DeletedSubmissions != many {
				t.Errorf("%+v %v", ended, err)
			}
			if s := api.Get(t, status).Wants(t, http.StatusOK).Object(t)["status"]; s != "processed" {
				t.Errorf("the status is %v", s)
			}
			small, _ := newForm(t, p, ws)
			e, err := forms.Erase(t.Context(), small.ID)
			unknown, erred := forms.EraseAddress(t.Context(), "unknown@example.org")
			if err != nil || erred != nil || e != unknown || e != (client.Erasure{Status: client.ErasureProcessed}) {
				t.Errorf("an erasure of nothing is %+v %v, %+v %v", e, err, unknown, erred)
			}
			if n := submissions(t, p, form); n != 0 {
				t.Errorf("%d submissions are left", n)
			}
		})
	}
}

// keyed sends a write twice with a new Idempotency-Key, and then the key with another body. It returns the first
// answer, which the second repeats.
func keyed(t *testing.T, api harness.API, method, path string, body any, want int) harness.Answer {
	t.Helper()
	api = api.With("Idempotency-Key", uuid.NewString())
	first := api.JSON(t, method, path, body).Wants(t, want).WantsHeader(t, "Idempotency-Replayed", "")
	again := api.JSON(t, method, path, body).Wants(t, want).WantsHeader(t, "Idempotency-Replayed", "true")
	if string(again.Body) != string(first.Body) {
		t.Errorf("the second response does not repeat the first:\n%s", again)
	}
	api.JSON(t, method, path, map[string]any{"another": "body"}).WantsNested(t, http.StatusConflict, "CONFLICT")
	return first
}

// deleted is keyed for DELETE, whose first request has no body.
func deleted(t *testing.T, api harness.API, path string, want int) {
	t.Helper()
	api = api.With("Idempotency-Key", uuid.NewString())
	api.Send(t, http.MethodDelete, path, "", "").Wants(t, want)
	api.Send(t, http.MethodDelete, path, "application/json", `{"another":"body"}`).
		WantsNested(t, http.StatusConflict, "CONFLICT")
}

// statuses checks the statuses of the items of an answer.
func statuses(t *testing.T, answer harness.Answer, want ...int) {
	t.Helper()
	var got []int
	for _, one := range answer.Object(t)["data"].([]any) {
		status, _ := one.(map[string]any)["status"].(float64)
		got = append(got, int(status))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the items have the statuses %v, want %v:\n%s", got, want, answer)
	}
}

func TestProgrammes_ExternalIDsBatchesAndErasure(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	const path = programmes + "/external/crm-1"
	keyed(t, api, http.MethodPut, path, map[string]any{"name": "Spring pantry"}, http.StatusCreated)
	changed := api.JSON(t, http.MethodPut, path, map[string]any{"name": "Summer pantry"}).Wants(t, http.StatusOK)
	if name := changed.Object(t)["name"]; name != "Summer pantry" {
		t.Errorf("%v", name)
	}
	api.With("If-Match", `"0"`).JSON(t, http.MethodPut, path, map[string]any{"name": "x"}).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	batch := keyed(t, api, http.MethodPost, programmes+"/batch", map[string]any{"items": []any{
		map[string]any{"name": "Autumn pantry", "externalId": "crm-1"}, map[string]any{"name": ""},
		map[string]any{"name": "Winter pantry"},
	}}, http.StatusOK)
	statuses(t, batch, http.StatusOK, http.StatusBadRequest, http.StatusCreated)
	data := batch.Object(t)["data"].([]any)
	id, _ := data[2].(map[string]any)["id"].(string)
	moved := keyed(t, api, http.MethodPost, programmes+"/transitions", map[string]any{"items": []any{
		map[string]any{"id": data[0].(map[string]any)["id"], "to": "active"},
		map[string]any{"id": id, "to": "completed"},
	}}, http.StatusOK)
	statuses(t, moved, http.StatusOK, http.StatusConflict)
	deleted(t, api, programmes+"/"+id, http.StatusNoContent)
	api.Send(t, http.MethodDelete, programmes+"/"+id, "", "").WantsNested(t, http.StatusNotFound, "NOT_FOUND")

	me := p.As(ws.Token).Get(t, "/v1/me").Wants(t, http.StatusOK).Object(t)
	if workspaces := me["workspaces"].([]any); len(workspaces) != 1 ||
		workspaces[0].(map[string]any)["id"] != ws.Workspace.ID {
		t.Errorf("%v", me)
	}
	p.As(ws.Token).Get(t, "/v1/me?unknown=1").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	account := "/v1/account/tenants/" + ws.Workspace.ID
	for _, list := range []string{"/oauth-clients", "/members", "/invitations"} {
		p.As(ws.Token).Get(t, account+list+"?cursor=x").Wants(t, http.StatusBadRequest)
		p.As(ws.Token).Get(t, account+list+"?limit=1").Wants(t, http.StatusOK)
	}
}

// What is erased of each, and what stays, TestErase_SubmissionFormAndSupporter of resourceapi tests.
func TestEngage_SubmissionsAndSupportersAreErased(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
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
	export := "/v1/engage/forms/" + form.ID + "/submissions/export?format="
	for format, lines := range map[string]int{"csv": 3, "jsonl": 2} {
		if body := string(api.Get(t, export+format).Wants(t, http.StatusOK).Body); strings.Count(body, "\n") != lines {
			t.Errorf("%s has %d lines, want %d", format, strings.Count(body, "\n"), lines)
		}
	}
	deleted(t, api, first, http.StatusNoContent)
	api.Get(t, first).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
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
	if n := submissions(t, p, form); n != 0 {
		t.Errorf("%d submissions are left", n)
	}
}
