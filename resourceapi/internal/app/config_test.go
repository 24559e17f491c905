package app

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/database/migrate"
)

const goodKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestLoadConfig_ChecksEverySetting(t *testing.T) {
	good := map[string]string{
		"ALMONER_BASE_URL":     "http://localhost:8080",
		"ALMONER_DATABASE_URL": "postgres://x:hush@localhost/x",
		"ALMONER_KEYS":         goodKey,
	}
	environ := func(name, value string) []string {
		var out []string
		for n, v := range good {
			if n != name {
				out = append(out, n+"="+v)
			}
		}
		return append(out, name+"="+value)
	}
	c, _, err := LoadConfig(environ("ALMONER_JWKS_URL", ""))
	if err != nil || c.Listen != "127.0.0.1:8082" || c.JWKSURL != "http://localhost:8080/v1/account/oauth/jwks" ||
		c.Connections != 16 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range []struct{ name, value string }{
		{"ALMONER_BASE_URL", ""},
		{"ALMONER_BASE_URL", "localhost:8080"},
		{"ALMONER_BASE_URL", "http://localhost:8080/"},
		{"ALMONER_BASE_URL", "http://localhost/api"},
		{"ALMONER_BASE_URL", "ftp://localhost"},
		{"ALMONER_BASE_URL", "http://u:hush@localhost"},
		{"ALMONER_BASE_URL", "http://localhost?x"},
		{"ALMONER_BASE_URL", "http://LOCALHOST"},
		{"ALMONER_KEYS", "hush"},
		{"ALMONER_KEYS", goodKey + ",hush"},
		{"ALMONER_DATABASE_URL", ""},
		{"ALMONER_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_JWKS_URL", "file:///hush"},
		{"ALMONER_DATABASE_CONNECTIONS", "1"},
		{"ALMONER_DATABASE_CONNECTIONS", "hush"},
		{"ALMONER_REDIS_URL", "hush"},
		{"ALMONER_TRUSTED_PROXIES", "hush"},
		{"ALMONER_WORKER", "hush"},
		{"ALMONER_APP_URL", "http://localhost:8081/"},
		{"ALMONER_MCP_ORIGINS", "https://claude.ai,hush"},
		{"ALMONER_MCP_ORIGINS", "https://claude.ai/"},
		{"ALMONER_MCP_ORIGINS", "*"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hush"},
		{"OTEL_TRACES_SAMPLER_ARG", "2"},
		{"OTEL_TRACES_SAMPLER_ARG", "hush"},
	} {
		_, _, err := LoadConfig(environ(wrong.name, wrong.value))
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s=%s: %v", wrong.name, wrong.value, err)
		}
	}
	err = Migrate(t.Context(), nil, migrate.Options{Check: true}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ALMONER_DATABASE_URL") {
		t.Errorf("%v", err)
	}
}

// A deployment with a public URL refuses the setting that allows webhook endpoints on this machine.
func TestConfig_WebhookCAIsForDevelopment(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	good := Config{WebhookCA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))}
	for base, accepted := range map[string]bool{
		"http://localhost:8080":         true,
		"http://127.0.0.1:8080":         true,
		"http://[::1]:8080":             true,
		"https://api.example.org":       false,
		"https://localhost.example.org": false,
		"http://10.0.0.1":               false,
	} {
		c := good
		c.BaseURL = base
		if mistakes := c.checkWebhooks(); accepted != (len(mistakes) == 0) {
			t.Errorf("%s: %v", base, mistakes)
		}
	}
	bad := Config{BaseURL: "http://localhost:8080", WebhookCA: "no certificate"}
	if mistakes := bad.checkWebhooks(); len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), "no PEM") {
		t.Errorf("%v", mistakes)
	}
}

// apply runs the command with a file and returns its output.
func apply(t *testing.T, s *service, c ApplyCommand, file string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := c.Run(t.Context(), []string{"ALMONER_DATABASE_URL=" + s.Database.Resourceapi}, strings.NewReader(file), &out)
	return out.String(), err
}

func TestApply_CreatesAndChangesForms(t *testing.T) {
	s := newService(t)
	workspaceID, id := s.Workspace(), uuid.NewString()
	file := `clients: [{id: x, kind: service}]
forms:
  - id: ` + id + `
    workspace: ` + workspaceID.String() + `
    title: Volunteer
    retentionMonths: 12
    allowedOrigins: [https://www.example.org]
    fields:
      - {name: email, label: E-mail, type: email, required: true}
      - {name: area, label: Where, type: select, required: false, options: [Kitchen, Garden]}
`
	const stored = "select count(*) from resource.forms where id = $1 and tenant_id = $2 and title = $3"
	out, err := apply(t, s, ApplyCommand{DryRun: true}, file)
	if err != nil || !strings.Contains(out, "create  "+id) || !strings.Contains(out, "Dry run") ||
		strings.Contains(out, "embed key") || s.Count(stored, id, workspaceID, "Volunteer") != 0 {
		t.Errorf("dry run: %s %v", out, err)
	}
	out, err = apply(t, s, ApplyCommand{}, file)
	if err != nil || !strings.Contains(out, "embed key: alm_embed_") ||
		s.Count(stored, id, workspaceID, "Volunteer") != 1 {
		t.Errorf("%s %v", out, err)
	}
	if out, err = apply(t, s, ApplyCommand{}, file); err != nil || out != "0 created, 0 changed, 1 unchanged\n" {
		t.Errorf("again: %s %v", out, err)
	}
	renamed := strings.Replace(file, "Volunteer", "Help out", 1) + "    enabled: false\n"
	out, err = apply(t, s, ApplyCommand{DryRun: true}, renamed)
	if err != nil || !strings.Contains(out, "Help out: title, enabled\n") ||
		s.Count(stored, id, workspaceID, "Volunteer") != 1 {
		t.Errorf("dry run of a change: %s %v", out, err)
	}
	out, err = apply(t, s, ApplyCommand{JSON: true}, renamed)
	if err != nil || !strings.Contains(out, `"action": "change"`) || s.Count(stored, id, workspaceID, "Help out") != 1 {
		t.Errorf("change: %s %v", out, err)
	}
}

// A file with a mistake changes nothing, not even the forms before it, and the error names the mistake.
func TestApply_InvalidFileChangesNothing(t *testing.T) {
	s := newService(t)
	own, id, unknown := s.Workspace().String(), uuid.NewString(), uuid.NewString()
	entryIn := func(workspace, id, title, name string) string {
		return "  - {id: " + id + ", workspace: " + workspace + ", title: " + title +
			", allowedOrigins: [], fields: [{name: " + name + ", label: A, type: text, required: false}]}\n"
	}
	entry := func(id, title, name string) string { return entryIn(own, id, title, name) }
	orFail(apply(t, s, ApplyCommand{}, "forms:\n"+entry(id, "One", "a")))(t)
	s.wantsRows(1, "resource.forms", "created_by is null")
	good := entry(uuid.NewString(), "Two", "a")
	coloured := strings.Replace(good, "title", "colour: x, title", 1)
	elsewhere := entryIn(unknown, uuid.NewString(), "Three", "a")
	for file, words := range map[string]string{
		"":                                 "no forms",
		"form: []\n":                       "not valid",
		"forms: [{id: x}]\n":               "id must be a UUID",
		"forms:\n" + coloured:              "colour",
		"forms:\n" + good + good:           "earlier entry",
		"forms:\n" + entry(id, "One", "b"): "choose a new id",
		"forms:\n" + good + entry(id, "One", "b"):       "choose a new id",
		"forms:\n" + entry(uuid.NewString(), "''", "a"): "title: ",
		"forms:\n" + good + elsewhere:                   `forms[1] ("Three"): there is no workspace ` + unknown,
	} {
		for _, dry := range []bool{true, false} {
			out, err := apply(t, s, ApplyCommand{DryRun: dry}, file)
			if err == nil || out != "" || !strings.Contains(err.Error(), words) {
				t.Errorf("%q: %s %v, want %q", file, out, err, words)
			}
		}
	}
	s.wantsRows(1, "resource.forms", "")
}

// Assistants and OAuth clients show the brand name of the deployment.
func TestBrand_NoOtherNameIsShown(t *testing.T) {
	s := newOwn(t, func(c *Config) { c.BrandName = "Harbour Trust" })
	token := s.reader().token()
	_, f := s.form()
	const form = `/logo" alt="" width="24" height="24"><span>Harbour Trust</span>`
	const known = "/.well-known/oauth-protected-resource"
	for what, c := range map[string]struct {
		a    answer
		want string
	}{
		"metadata of the API":        {s.get(known+"/v1", nil), `"Harbour Trust API"`},
		"metadata of MCP":            {s.get(known+"/mcp", nil), `"Harbour Trust for assistants"`},
		"title of the server":        {s.post(assistant(token), initialize), `"title":"Harbour Trust"`},
		"instructions of the server": {s.post(assistant(token), initialize), `"Harbour Trust lets you read`},
		"page of a form":             {s.get(f.path()+"/embed", nil), form},
		"page of a form in a frame":  {s.get(f.path()+"/embed?frame=1", nil), form},
		"documentation":              {s.get("/v1/docs", nil), "<title>Harbour Trust API</title>"},
		"page at the address":        {s.get("/", header{"Accept": "text/html"}), "<title>Harbour Trust API</title>"},
		"page that does not exist":   {s.get("/v1/docs/x", header{"Accept": "text/html"}), "Page not found · Harbour"},
	} {
		if !strings.Contains(c.a.Body, c.want) || what != "documentation" && strings.Contains(c.a.Body, "Almoner") {
			t.Errorf("%s: %s", what, c.a.Body)
		}
	}
}

func TestForms_RetentionMonths(t *testing.T) {
	s, h, f := newForm(t)
	path := f.own()
	s.get(path, h).has(t, `"retentionMonths":24`)
	a := s.do("POST", formsPath, h, allTypesWith(`"retentionMonths":6`))
	a.wants(t, 201, `"retentionMonths":6`)
	s.patch(f, h, `{"retentionMonths":120}`).wants(t, 200, `"retentionMonths":120`)
	formsOnly := s.newHolder(perm.EngageWriteForms)
	own := s.makeForm(formsOnly, allTypes)
	s.patch(own, formsOnly, `{"retentionMonths":1}`).expect(t, 403, "FORBIDDEN", "")
	s.patch(own, formsOnly, `{"title":"Another"}`).wants(t, 200)
	s.patch(f, h, `{"title":"Another"}`).has(t, `"retentionMonths":120`)
	const changed = `select count(*) from account.events where type = 'form.updated' and data ->> 'id' = $1
		and data -> 'changed' ? 'retentionMonths'`
	s.Wants(1, changed, f.ID.String())
}

// The command counts the due records, and deletes them only when it is told to.
func TestRetentionCommand(t *testing.T) {
	s := newOwn(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	s.Exec(`insert into resource.imports (id, tenant_id, user_id, status, finished_at)
		values (gen_random_uuid(), $1, $2, 'processed', $3)`, workspaceID, user, time.Now().AddDate(0, 0, -91))
	environ := []string{"ALMONER_DATABASE_URL=" + s.Database.Resourceapi}
	run := func(deletes, asJSON bool) string {
		t.Helper()
		var out bytes.Buffer
		must(t, Retention(t.Context(), environ, deletes, asJSON, &out))
		return out.String()
	}
	var rows []struct {
		Kind     string
		Setting  string
		KeepDays *int
		Due      int
	}
	must(t, json.Unmarshal([]byte(run(false, true)), &rows))
	for _, r := range rows {
		if r.Kind == "finished imports" && (r.Due != 1 || *r.KeepDays != 90 ||
			r.Setting != "ALMONER_RETENTION_IMPORTS_DAYS") {
			t.Errorf("%+v", r)
		}
	}
	if text := run(false, false); strings.Count(text, "\n") != len(rows)+1 ||
		!strings.Contains(text, "retentionMonths of the form") {
		t.Errorf("%s", text)
	}
	s.wantsRows(1, "resource.imports", "")
	if text := run(true, false); !strings.Contains(text, "finished imports") {
		t.Errorf("%s", text)
	}
	s.wantsRows(0, "resource.imports", "")
	wrong := append(environ, "ALMONER_RETENTION_IMPORTS_DAYS=-1")
	if err := Retention(t.Context(), wrong, false, false, &bytes.Buffer{}); err == nil {
		t.Error("a negative number of days is accepted")
	}
}
