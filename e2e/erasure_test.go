package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// "An erasure of more than 1,000 submissions is 202; the form is closed and nothing of it can be read from then on (a
// supporter likewise)" (contract, section 6a).
func TestErasure_OfManySubmissionsIsDoneInTheBackground(t *testing.T) {
	t.Parallel()
	p := enter(t)
	const many = 1500
	for what, erase := range map[string]func(api harness.API, form, supporter string) harness.Answer{
		"form": func(api harness.API, form, _ string) harness.Answer {
			return api.Send(t, http.MethodDelete, "/v1/engage/forms/"+form, "", "")
		},
		"supporter": func(api harness.API, _, supporter string) harness.Answer {
			return api.Send(t, http.MethodDelete, "/v1/engage/supporters/"+supporter, "", "")
		},
		"address": func(api harness.API, _, _ string) harness.Answer {
			return api.JSON(t, http.MethodPost, "/v1/engage/supporters/erase",
				map[string]any{"email": "ada@example.org"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ws := p.NewWorkspace(t)
			api := p.In(ws.Workspace, ws.Token)
			form, path := newForm(t, p, ws)
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
			if what == "form" {
				p.API().Get(t, path).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
				api.Get(t, "/v1/engage/forms/"+form.ID).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
			} else {
				api.Get(t, "/v1/engage/supporters/"+supporter).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
				list := api.Get(t, "/v1/engage/forms/"+form.ID+"/submissions").Wants(t, http.StatusOK).Object(t)
				if len(list["data"].([]any)) != 0 {
					t.Error("submissions can be read")
				}
			}
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
