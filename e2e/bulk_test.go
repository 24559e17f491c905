package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// keyed sends a write with a new Idempotency-Key, and then the key with another body. It returns the first answer.
func keyed(t *testing.T, api harness.API, method, path string, body any, want int) harness.Answer {
	t.Helper()
	api = api.With("Idempotency-Key", uuid.NewString())
	first := api.JSON(t, method, path, body).Wants(t, want)
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
		map[string]any{"name": "Autumn pantry", "externalId": "crm-1"},
		map[string]any{"name": ""},
		map[string]any{"name": "Winter pantry"},
	}}, http.StatusOK).Object(t)["data"].([]any)
	var got []float64
	for _, one := range batch {
		status, _ := one.(map[string]any)["status"].(float64)
		got = append(got, status)
	}
	if len(got) != 3 || got[0] != http.StatusOK || got[1] != http.StatusBadRequest || got[2] != http.StatusCreated {
		t.Errorf("%v", got)
	}
	id, _ := batch[2].(map[string]any)["id"].(string)
	moved := keyed(t, api, http.MethodPost, programmes+"/transitions", map[string]any{"items": []any{
		map[string]any{"id": batch[0].(map[string]any)["id"], "to": "active"},
		map[string]any{"id": id, "to": "completed"},
	}}, http.StatusOK).Object(t)["data"].([]any)
	if len(moved) != 2 || moved[0].(map[string]any)["status"] != float64(http.StatusOK) ||
		moved[1].(map[string]any)["status"] != float64(http.StatusConflict) {
		t.Errorf("%v", moved)
	}
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

func TestEngage_SubmissionsAndSupportersAreErased(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	form, path := newForm(t, p, ws)
	submit := func() string {
		t.Helper()
		token, _ := p.API().Get(t, path).Wants(t, http.StatusOK).Object(t)["submissionToken"].(string)
		met.Add("submission token", token)
		sent := p.API().JSON(t, http.MethodPost, path+"/submissions",
			map[string]any{"submissionToken": token, "answers": helper()}).Wants(t, http.StatusAccepted)
		id, _ := sent.Object(t)["id"].(string)
		return "/v1/engage/submissions/" + id
	}
	processed := func(path string) {
		t.Helper()
		await.True(t, "the submission is processed", func() bool {
			return api.Get(t, path).Wants(t, http.StatusOK).Object(t)["status"] == "processed"
		})
	}
	first, second := submit(), submit()
	processed(first)
	processed(second)
	export := "/v1/engage/forms/" + form.ID + "/submissions/export?format="
	for format, lines := range map[string]int{"csv": 3, "jsonl": 2} {
		if body := string(api.Get(t, export+format).Wants(t, http.StatusOK).Body); strings.Count(body, "\n") != lines {
			t.Errorf("%s has %d lines, want %d", format, strings.Count(body, "\n"), lines)
		}
	}
	deleted(t, api, first, http.StatusNoContent)
	api.Get(t, first).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	supporter := func() string {
		t.Helper()
		people := api.Get(t, "/v1/engage/supporters").Wants(t, http.StatusOK).Object(t)["data"].([]any)
		if len(people) != 1 {
			t.Fatalf("%d supporters", len(people))
		}
		id, _ := people[0].(map[string]any)["id"].(string)
		return "/v1/engage/supporters/" + id
	}
	person := supporter()
	if read := api.Get(t, person).Wants(t, http.StatusOK).Object(t); read["email"] != "ada@example.org" {
		t.Error("the supporter has another address")
	}
	deleted(t, api, person, http.StatusOK)
	api.Get(t, second).WantsNested(t, http.StatusNotFound, "NOT_FOUND")

	processed(submit())
	address := map[string]any{"email": "ada@example.org"}
	erased := keyed(t, api, http.MethodPost, "/v1/engage/supporters/erase", address, http.StatusOK).Object(t)
	if erased["deletedSubmissions"] != float64(1) {
		t.Errorf("%v", erased)
	}
	again := api.JSON(t, http.MethodPost, "/v1/engage/supporters/erase", address).Wants(t, http.StatusOK).Object(t)
	if again["deletedSubmissions"] != float64(0) {
		t.Errorf("%v", again)
	}
	deleted(t, api, "/v1/engage/forms/"+form.ID, http.StatusOK)
	if n := submissions(t, p, form); n != 0 {
		t.Errorf("%d submissions are left", n)
	}
}
