package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// The redirect URIs of the clients that the doctor simulates (connectors.md, Clients).
var doctorsCallbacks = []string{
	"https://claude.ai/api/mcp/auth_callback", "http://localhost:33419/callback",
	"https://chatgpt.com/connector_platform_oauth_redirect", "http://127.0.0.1:33418/",
	"http://127.0.0.1:33420/callback", "http://127.0.0.1:33421/callback",
	"cursor://anysphere.cursor-mcp/oauth/callback", "http://127.0.0.1:19876/mcp/oauth/callback",
	"http://localhost:7777/oauth/callback",
}

var doctorsProfiles = []string{
	"claude", "claude-code", "chatgpt", "codex", "cursor", "gemini-cli", "opencode", "vscode", "generic",
}

// A doctor runs the doctor command against the product.
type doctor struct {
	t      *testing.T
	url    string
	secret string // must not be in the output
}

// A diagnosis is the output of the command with --json.
type diagnosis struct {
	Verdict, Stopped string
	Findings         []struct{ Step, Verdict, Code, Says, Detail, Effect, Mend string }
}

func (d diagnosis) code(code string) (detail string, found bool) {
	for _, f := range d.Findings {
		if f.Code == code {
			return f.Detail, true
		}
	}
	return "", false
}

// bad returns the verdicts and codes of the findings that are not ok.
func (d diagnosis) bad() []string {
	var all []string
	for _, f := range d.Findings {
		if f.Verdict != "ok" {
			all = append(all, f.Verdict+" "+f.Code)
		}
	}
	return all
}

// run runs the command and returns its standard output and exit status. Its output must not contain secrets.
func (d doctor) run(args ...string) (string, int) {
	d.t.Helper()
	command := exec.CommandContext(d.t.Context(), harness.Program(d.t, "authserver"),
		append(append([]string{"doctor"}, args...), d.url)...)
	command.Env = []string{"PATH=" + os.Getenv("PATH")} // no configuration
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	printed := out.String() + complaints.String()
	if harness.Redact(printed) != printed || (d.secret != "" && strings.Contains(printed, d.secret)) {
		d.t.Error("the doctor prints a secret")
	}
	return out.String(), command.ProcessState.ExitCode()
}

func (d doctor) diagnose(args ...string) (diagnosis, int) {
	d.t.Helper()
	out, status := d.run(append([]string{"--json"}, args...)...)
	var found diagnosis
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		d.t.Fatalf("the output is not JSON (%v), status %d", err, status)
	}
	return found, status
}

// signedIn returns the options for consent as a user.
func (d *doctor) signedIn(user demo.User) []string {
	d.t.Helper()
	d.secret = user.Password
	file := filepath.Join(d.t.TempDir(), "password")
	must(d.t, os.WriteFile(file, []byte(user.Password+"\n"), 0o600))
	return []string{"--email", user.Email, "--password-file", file}
}

// doctorsClient registers a connector with redirect URIs: by default those of all profiles.
func doctorsClient(t *testing.T, ws harness.TestWorkspace, body map[string]any, callbacks ...string) string {
	t.Helper()
	if body["redirectUris"] = doctorsCallbacks; len(callbacks) > 0 {
		body["redirectUris"] = callbacks
	}
	id, _ := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
	return id
}

// For each client, from the first call to the refresh and a replay, the doctor finds no problem and leaves no grant.
func TestDoctor_AllProfilesPass(t *testing.T) {
	p, ws := inWorkspace(t)
	client := doctorsClient(t, ws, harness.ConnectorBody(p.BaseURL+"/mcp", harness.ReadProgrammes))
	for _, as := range doctorsProfiles {
		d := doctor{t: t, url: p.BaseURL + "/mcp"}
		found, status := d.diagnose(append(d.signedIn(ws.Owner), "--as", as, "--client-id", client, "--replay")...)
		bad := slices.DeleteFunc(found.bad(), func(code string) bool { return code == "warn not_on_the_internet" })
		if status != 0 || found.Stopped != "" || len(bad) != 0 {
			t.Errorf("as %s: status %d, %v; %s", as, status, bad, found.Stopped)
		}
		if place, _ := found.code("workspace_told"); !strings.Contains(place, ws.Workspace.Name) {
			t.Errorf("as %s: the workspace is not named: %q", as, place)
		}
		for _, code := range []string{
			"server_ok", "form_action_ok", "callback_ok", "refresh_ok", "replay_ok", "revoked", "signed_out",
		} {
			if _, ok := found.code(code); !ok {
				t.Errorf("as %s: no %s", as, code)
			}
		}
	}
	left := p.Database.Count(t, `select count(*) from account.grants where client_id = $1 and state <> 'revoked'`,
		client)
	if made := grantsOf(t, p, client); left != 0 || made != len(doctorsProfiles) {
		t.Errorf("%d of %d grants are not revoked", left, made)
	}
	// Without credentials it checks everything before the sign-in, and succeeds.
	d := doctor{t: t, url: p.BaseURL + "/mcp"}
	found, status := d.diagnose("--as", "claude", "--client-id", client)
	if _, probed := found.code("authorize_ok"); status != 0 || !probed ||
		!strings.Contains(found.Stopped, "No user signed in") {
		t.Errorf("without credentials: status %d, %v; %s", status, found.bad(), found.Stopped)
	}
}

// The demo's client, with output as text.
func TestDoctor_TextOutputOnSuccess(t *testing.T) {
	p := inParallel(t)
	mcp := p.Demo.Clients.MCP
	d := doctor{t: t, url: mcp.Resource}
	out, status := d.run(
		append(d.signedIn(p.Demo.Users.Owner), "--client-id", mcp.ClientID, "--redirect-uri", mcp.RedirectURI)...)
	if status != 0 || !strings.Contains(out, "All is well: ") || strings.Contains(out, "  warn ") ||
		strings.Contains(out, "FAIL  ") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// A client with a metadata document, on a loopback port that the document does not contain, in the given workspace.
func TestDoctor_MetadataDocument(t *testing.T) {
	p, site := enterWithDocuments(t)
	ws := p.NewWorkspace(t)
	client := site.Client("/oauth/client", []string{"http://127.0.0.1/callback"}, nil)
	d := doctor{t: t, url: p.BaseURL + "/mcp"}
	asOwner := append(d.signedIn(ws.Owner), "--client-id", client, "--replay")
	found, status := d.diagnose(append(asOwner, "--workspace", ws.Workspace.ID)...)
	if place, _ := found.code("workspace_told"); status != 0 || len(found.bad()) != 0 ||
		!strings.Contains(place, ws.Workspace.Name) {
		t.Errorf("status %d, %v, in %s; %s", status, found.bad(), place, found.Stopped)
	}
	found, status = d.diagnose(asOwner...)
	if offered, asked := found.code("workspace_not_chosen"); status != 1 || !asked ||
		!strings.Contains(offered, ws.Workspace.Name) {
		t.Errorf("status %d: no workspace was given, but one was chosen: %v", status, found.bad())
	}
	found, status = d.diagnose("--client-id", client, "--redirect-uri", "http://127.0.0.1:33420/elsewhere")
	if _, refused := found.code("document_not_taken"); status != 1 || !refused {
		t.Errorf("status %d: %v", status, found.bad())
	}
	made := p.Database.Count(t, `select count(*) from account.grants where user_id = $1`, ws.Owner.ID)
	if left := p.Database.Count(t, `select count(*) from account.grants where user_id = $1 and state <> 'revoked'`,
		ws.Owner.ID); left != 0 || made == 0 {
		t.Errorf("%d of %d grants are not revoked", left, made)
	}
}

// Each mistake of operators and users at the product has its own code, with a remedy. Those elsewhere are in
// TestRun_DiagnosesEachSymptom and TestRun_NamesCauseOfMissingResponse of doctor.
func TestDoctor_ReportsProblems(t *testing.T) {
	p := inParallel(t)
	ws, quiet := p.NewWorkspace(t), p.NewWorkspace(t)
	p.Database.SetLLM(t, quiet.Workspace, false)
	stranger, wrong := p.Database.User(t), ws.Owner
	wrong.Password = "not the password at all"
	const generic, nobody = "http://127.0.0.1:33420/callback", "11111111-2222-4333-8444-555555555555"
	url := p.BaseURL + "/mcp"
	body := func() map[string]any { return harness.ConnectorBody(url, harness.ReadProgrammes) }
	client, quietClient := doctorsClient(t, ws, body()), doctorsClient(t, quiet, body())
	ofV1 := doctorsClient(t, ws, harness.ConnectorBody(p.BaseURL+"/v1", harness.ReadProgrammes), generic)
	withSecret := doctorsClient(t, ws, harness.ConfidentialBody(harness.ReadProgrammes), generic)
	ofOnePort := doctorsClient(t, ws, body(), "http://localhost:3118/callback")
	for _, c := range []struct {
		code, url, client string
		user              *demo.User
		args              []string
	}{
		{"resource_differs", url + "/", "", nil, nil},
		{"authorize_refused", url, client, nil, []string{"--redirect-uri", "http://127.0.0.1:33420/elsewhere"}},
		{"authorize_refused token_unknown_client", url, nobody, nil, nil},
		{"other_resource", url, ofV1, &ws.Owner, nil},
		{"confidential_client", url, withSecret, nil, nil},
		{"port_not_registered", url, ofOnePort, nil, []string{"--as", "claude-code"}},
		{"needs_registration", url, "", nil, []string{"--as", "opencode"}},
		{"sign_in_failed", url, client, &wrong, nil},
		{"consent_refused", url, client, &stranger, nil},
		{"consent_refused", url, quietClient, &quiet.Owner, nil},
	} {
		d := doctor{t: t, url: c.url}
		if c.client != "" {
			c.args = append(c.args, "--client-id", c.client)
		}
		if c.user != nil {
			c.args = append(c.args, d.signedIn(*c.user)...)
		}
		found, status := d.diagnose(c.args...)
		for code := range strings.FieldsSeq(c.code) {
			if _, ok := found.code(code); !ok || status != 1 || found.Verdict != "fail" {
				t.Errorf("%s %s: status %d, %v", c.url, code, status, found.bad())
			}
			for _, f := range found.Findings {
				if f.Code == code && (f.Says == "" || f.Effect == "" || f.Mend == "") {
					t.Errorf("%s: no remedy", code)
				}
			}
		}
	}
}

// Invalid options have exit status 2, and nothing is sent. TestBegin_RefusesInvalidOptions has more of them.
func TestDoctor_RejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	for address, options := range map[string][]string{
		"http://localhost/mcp":            {"--password-file", "no/such/file", "--email", "ada@example.org"},
		"http://127.0.0.1/mcp":            {"--password", "secret"},
		"http://ada:secret@localhost/mcp": nil,
	} {
		d := doctor{t: t, url: address, secret: "secret"}
		if out, status := d.run(options...); status != 2 || strings.Contains(out, "1 Reach") {
			t.Errorf("%s %v: status %d", address, options, status)
		}
	}
}
