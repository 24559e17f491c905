package e2e

import (
	"encoding/csv"
	"io"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

func TestClient_BatchesAndTransitions(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	all := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Programmes
	results, err := all.Batch(ctx, []client.NewProgramme{
		{Name: "Night shelter", ExternalID: "crm-1"},
		{Name: ""},
		{Name: "Tool bank", ExternalID: "crm-1"},
	})
	if err != nil || len(results) != 3 || results[0].Status != http.StatusCreated || results[0].ID == "" ||
		results[1].Error == nil || results[1].Error.Fields["name"] == "" || results[2].ID != results[0].ID {
		t.Fatalf("%+v %v", results, err)
	}
	results, err = all.MoveAll(ctx, []client.ProgrammeMove{
		{ID: results[0].ID, To: client.Active},
		{ID: results[0].ID, To: client.Draft},
		{ID: uuid.NewString(), To: client.Active},
	})
	if err != nil || len(results) != 3 || results[0].Status != http.StatusOK ||
		results[1].Error == nil || results[1].Error.Code != client.CodeConflict ||
		results[2].Status != http.StatusNotFound {
		t.Errorf("%+v %v", results, err)
	}
	_, err = all.MoveAll(ctx, []client.ProgrammeMove{})
	refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid)
}

func TestClient_ExportsSubmissions(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	forms := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms
	form, err := forms.Create(ctx, client.NewForm{Title: "Volunteer", Fields: []client.Field{{
		Name:     "email",
		Label:    "E-mail",
		Type:     "email",
		Required: true,
	}}})
	must(t, err)
	for range 3 {
		submit(t, p.API(), "/v1/engage/public/forms/"+form.EmbedKey, map[string]any{"email": "ada@example.org"}).
			Wants(t, http.StatusAccepted)
	}
	exported, err := forms.Export(ctx, form.ID, client.CSV, client.SubmissionFilter{})
	must(t, err)
	defer func() { _ = exported.Close() }()
	rows, err := csv.NewReader(exported).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][len(rows[1])-1] != "ada@example.org" {
		t.Errorf("%v %v", rows, err)
	}
	none, err := forms.Export(ctx, form.ID, client.JSONLines, client.SubmissionFilter{Status: "rejected"})
	must(t, err)
	if content, err := io.ReadAll(none); err != nil || len(content) != 0 {
		t.Errorf("%s %v", content, err)
	}
	_, err = forms.Export(ctx, uuid.NewString(), client.CSV, client.SubmissionFilter{})
	refused(t, err, http.StatusNotFound, client.Nested, client.CodeNotFound)
}
