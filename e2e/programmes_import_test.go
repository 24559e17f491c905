package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.5 ("A 202 means the command was accepted for asynchronous processing") and contract, section 6: imports.

type importStatus struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Imported int    `json:"imported"`
	Errors   []struct {
		Row     int    `json:"row"`
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// imports sends a file and follows its statusUrl until the file is dealt with.
func imports(t *testing.T, p *harness.Product, api harness.API, csv string) importStatus {
	t.Helper()
	answer := api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", csv).Wants(t, http.StatusAccepted)
	object := answer.Object(t)
	url, _ := object["statusUrl"].(string)
	path, ours := strings.CutPrefix(url, p.BaseURL)
	if object["id"] == nil || !ours {
		t.Fatalf("no id, or a statusUrl elsewhere:\n%s", answer)
	}
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		status := api.Get(t, path).Wants(t, http.StatusOK)
		status.WantsKeys(t, "id", "status", "imported", "errors")
		var now importStatus
		status.Into(t, &now)
		if now.ID != object["id"] || !slices.Contains([]string{"accepted", "processed", "rejected"}, now.Status) || now.Errors == nil {
			t.Fatalf("not the status of this import:\n%s", status)
		}
		if now.Status != "accepted" {
			return now
		}
	}
	t.Fatal("the import is not dealt with")
	return importStatus{}
}

func TestImportIsProcessed(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, csv := range map[string]string{
		"every column":  "name,summary,status,startsOn,endsOn\nPantry,Food,active,2026-01-01,2026-12-31\nChoir,,draft,,\n",
		"another order": "endsOn,name,startsOn,status,summary\n2026-12-31,Pantry,2026-01-01,active,Food\n,Choir,,draft,\n",
		"CRLF, quotes":  "name,summary,status,startsOn,endsOn\r\n\"Pantry\",Food,active,2026-01-01,2026-12-31\r\nChoir,,draft,,\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			office := p.Office(t)
			api := p.In(office.Tenant, office.Token)
			done := imports(t, p, api, csv)
			if done.Status != "processed" || done.Imported != 2 || len(done.Errors) != 0 {
				t.Errorf("import ended as %+v", done)
			}
			all, _ := walk(t, api, nil)
			i := slices.IndexFunc(all, func(one programme) bool { return one.Name == "Pantry" })
			if len(all) != 2 || i < 0 || all[i].Status != "active" || all[i].Summary != "Food" || *all[i].EndsOn != "2026-12-31" {
				t.Errorf("imported %+v", all)
			}
		})
	}
	t.Run("name alone", func(t *testing.T) {
		office := p.Office(t)
		api := p.In(office.Tenant, office.Token)
		if done := imports(t, p, api, "name\nGarden\n"); done.Status != "processed" || done.Imported != 1 {
			t.Errorf("import ended as %+v", done)
		}
		if all, _ := walk(t, api, nil); len(all) != 1 || all[0].Status != "draft" {
			t.Errorf("imported %+v", all)
		}
	})
}

func TestImportWithABadHeaderIs400(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	api := p.In(office.Tenant, office.Token)
	for name, csv := range map[string]string{
		"empty": "", "no name": "summary,status\nx,draft\n", "unknown column": "name,colour\nx,red\n", "column twice": "name,name\nx,y\n",
		"no header": "Pantry,Food\n", "another case": "Name\nx\n", "semicolons": "name;summary\nx;y\n",
	} {
		t.Run(name, func(t *testing.T) {
			api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", csv).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
	api.JSON(t, http.MethodPost, programmes+"/imports", `{"name":"x"}`).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

// "one bad row rejects all"
func TestImportWithOneBadRowImportsNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	api := p.In(office.Tenant, office.Token)
	csv := "name,status,startsOn\nGood,draft,2026-01-01\n,draft,2026-01-01\nBad,gone,not a day\nAlso good,active,\n"
	done := imports(t, p, api, csv)
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
	if all, _ := walk(t, api, nil); len(all) != 0 {
		t.Errorf("%d programmes of a rejected import", len(all))
	}
}
