package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Spec 4.5 ("A 202 means the command was accepted for asynchronous processing") and contract, section 6: imports.

// imports sends a file and waits until the import is finished.
func imports(t *testing.T, api harness.API, csv string) client.Import {
	t.Helper()
	ctx, p := t.Context(), api.Client(t).Programmes
	done, err := p.Import(ctx, strings.NewReader(csv))
	if err == nil {
		done, err = p.WaitForImport(ctx, done.ID)
	}
	if err != nil {
		t.Fatal(redactError(err))
	}
	return done
}

// "The client keeps the returned identifier and later checks the relevant read or status endpoint." (spec 4.5)
func TestImport_AcceptedHasStatusURL(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for csv, want := range map[string]string{"name\nPantry\n": "processed", "name,status\nPantry,gone\n": "rejected"} {
		accepted := api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", csv).Wants(t, http.StatusAccepted)
		object := accepted.WantsKeys(t, "id", "status", "statusUrl")
		url, _ := object["statusUrl"].(string)
		path, ours := strings.CutPrefix(url, p.BaseURL)
		if object["status"] != "accepted" || !ours || accepted.Header.Get("Location") != url {
			t.Fatalf("wrong status, statusUrl or Location:\n%s", accepted)
		}
		await.True(t, "the import is "+want, func() bool {
			answer := api.Get(t, path).Wants(t, http.StatusOK)
			now := answer.WantsKeys(t, "id", "status", "imported", "errors")
			status, _ := now["status"].(string)
			if _, isList := now["errors"].([]any); !isList || now["id"] != object["id"] ||
				(status != "accepted" && status != want) {
				t.Fatalf("wrong status document:\n%s", answer)
			}
			return status == want
		})
	}
}

func TestImport_IsProcessed(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, csv := range map[string]string{
		"every column": "name,summary,status,startsOn,endsOn\n" +
			"Pantry,Food,active,2026-01-01,2026-12-31\nChoir,,draft,,\n",
		"another order": "endsOn,name,startsOn,status,summary\n" +
			"2026-12-31,Pantry,2026-01-01,active,Food\n,Choir,,draft,\n",
		"as a spreadsheet writes it": "\ufeffname,summary,status,startsOn,endsOn\r\n" +
			"Pantry,Food,active,2026-01-01,2026-12-31\r\nChoir,\"Sings, and\r\ndances\",draft,,\r\n\r\n",
		"CRLF, quotes": "name,summary,status,startsOn,endsOn\r\n" +
			"\"Pantry\",Food,active,2026-01-01,2026-12-31\r\nChoir,,draft,,\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			api := p.In(ws.Workspace, ws.Token)
			done := imports(t, api, csv)
			if done.Status != "processed" || done.Imported != 2 || len(done.Errors) != 0 {
				t.Errorf("import ended as %+v", done)
			}
			all := every(t, api)
			i := slices.IndexFunc(all, func(one client.Programme) bool { return one.Name == "Pantry" })
			if len(all) != 2 || i < 0 || all[i].Status != "active" || all[i].Summary != "Food" ||
				all[i].EndsOn != "2026-12-31" {
				t.Errorf("imported %+v", all)
			}
		})
	}
	t.Run("name alone", func(t *testing.T) {
		ws := p.NewWorkspace(t)
		api := p.In(ws.Workspace, ws.Token)
		if done := imports(t, api, "name\nGarden\n"); done.Status != "processed" || done.Imported != 1 {
			t.Errorf("import ended as %+v", done)
		}
		if all := every(t, api); len(all) != 1 || all[0].Status != "draft" {
			t.Errorf("imported %+v", all)
		}
	})
}

func TestImport_InvalidHeaderIs400(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for name, csv := range map[string]string{
		"empty":          "",
		"no name":        "summary,status\nx,draft\n",
		"unknown column": "name,colour\nx,red\n",
		"column twice":   "name,name\nx,y\n",
		"no header":      "Pantry,Food\n",
		"another case":   "Name\nx\n",
		"vertical bars":  "name|summary\nx|y\n",
	} {
		t.Run(name, func(t *testing.T) {
			api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", csv).
				WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
	api.JSON(t, http.MethodPost, programmes+"/imports", `{"name":"x"}`).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

// "one bad row rejects all"
func TestImport_InvalidRowImportsNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	csv := "name,status,startsOn\nGood,draft,2026-01-01\n,draft,2026-01-01\nBad,gone,not a day\nAlso good,active,\n"
	done := imports(t, api, csv)
	if done.Status != "rejected" || done.Imported != 0 {
		t.Errorf("import ended as %+v", done)
	}
	var fields []string
	for _, e := range done.Errors {
		if e.Message == "" || e.Row < 2 {
			t.Errorf("error %+v", e)
		}
		fields = append(fields, e.Field)
	}
	if got := strings.Join(sorted(fields), " "); got != "name startsOn status" {
		t.Errorf("errors for %q, want name, startsOn and status", got)
	}
	if all := every(t, api); len(all) != 0 {
		t.Errorf("%d programmes after a rejected import", len(all))
	}
}
