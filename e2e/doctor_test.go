package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
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
	if err := os.WriteFile(file, []byte(user.Password+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return []string{"--email", user.Email, "--password-file", file}
}

// doctorsClient registers a connector with the redirect URIs of all profiles.
func doctorsClient(t *testing.T, p *harness.Product, ws harness.TestWorkspace) string {
	t.Helper()
	return doctorsClientOf(t, ws, harness.ConnectorBody(p.BaseURL+"/mcp", harness.ReadProgrammes), doctorsCallbacks...)
}

func doctorsClientOf(t *testing.T, ws harness.TestWorkspace, body map[string]any, callbacks ...string) string {
	t.Helper()
	body["redirectUris"] = callbacks
	id, _ := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
	return id
}

// For each client, from the first call to the refresh and a replay, the doctor finds no problem and leaves no grant.
func TestDoctor_AllProfilesPass(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	client := doctorsClient(t, p, ws)
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
}

// The demo's client, with output as text.
func TestDoctor_TextOutputOnSuccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
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
	t.Parallel()
	var host *httptest.Server
	host = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"client_id":                  host.URL + "/oauth/client",
			"client_name":                "Claude Code",
			"redirect_uris":              []string{"http://127.0.0.1/callback"},
			"token_endpoint_auth_method": "none",
			"grant_types":                []string{"authorization_code", "refresh_token"},
			"response_types":             []string{"code"},
		})
	}))
	t.Cleanup(host.Close)
	stack := harness.Private(t, harness.Options{Settings: map[string]string{
		"ALMONER_CLIENT_DOMAINS": strings.TrimPrefix(host.URL, "https://") + "=claude",
		"ALMONER_CLIENT_DOCUMENT_CA": string(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw}),
		),
	}})
	p := harness.NewProduct(t, stack, &met)
	d := doctor{t: t, url: p.BaseURL + "/mcp"}
	asOwner := append(d.signedIn(p.Demo.Users.Owner), "--client-id", host.URL+"/oauth/client", "--replay")
	found, status := d.diagnose(append(asOwner, "--workspace", p.Demo.Workspaces.Main.ID)...)
	if place, _ := found.code("workspace_told"); status != 0 || len(found.bad()) != 0 ||
		!strings.Contains(place, p.Demo.Workspaces.Main.Name) {
		t.Errorf("status %d, %v, in %s; %s", status, found.bad(), place, found.Stopped)
	}
	found, status = d.diagnose(asOwner...)
	if offered, asked := found.code("workspace_not_chosen"); status != 1 || !asked ||
		!strings.Contains(offered, p.Demo.Workspaces.Main.Name) {
		t.Errorf("status %d: no workspace was given, but one was chosen: %v", status, found.bad())
	}
	found, status = d.diagnose("--client-id", host.URL+"/oauth/client", "--redirect-uri",
		"http://127.0.0.1:33420/elsewhere")
	if _, refused := found.code("document_not_taken"); status != 1 || !refused {
		t.Errorf("status %d: %v", status, found.bad())
	}
	if left := p.Database.Count(t, `select count(*) from account.grants where state <> 'revoked'`); left != 0 {
		t.Errorf("%d grants are not revoked", left)
	}
}

// Without credentials the doctor checks everything before the sign-in, and succeeds.
func TestDoctor_WithoutCredentialsStopsBeforeSignIn(t *testing.T) {
	t.Parallel()
	p := enter(t)
	client := doctorsClient(t, p, p.NewWorkspace(t))
	for _, as := range []string{"claude", "chatgpt", "vscode", "generic"} {
		d := doctor{t: t, url: p.BaseURL + "/mcp"}
		found, status := d.diagnose("--as", as, "--client-id", client)
		if _, probed := found.code("authorize_ok"); status != 0 || !probed ||
			!strings.Contains(found.Stopped, "No user signed in") {
			t.Errorf("as %s: status %d, %v; %s", as, status, found.bad(), found.Stopped)
		}
	}
}

// Each mistake of operators and users has its own code, with a remedy.
func TestDoctor_ReportsProblems(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, quiet := p.NewWorkspace(t), p.NewWorkspace(t)
	client, quietClient := doctorsClient(t, p, ws), doctorsClient(t, p, quiet)
	p.Database.SetLLM(t, quiet.Workspace, false)
	stranger := p.Database.User(t)
	wrong := ws.Owner
	wrong.Password = "not the password at all"
	generic := doctorsCallbacks[4]
	ofV1 := doctorsClientOf(t, ws, harness.ConnectorBody(p.BaseURL+"/v1", harness.ReadProgrammes), generic)
	withSecret := doctorsClientOf(t, ws, harness.ConfidentialBody(harness.ReadProgrammes), generic)
	ofOnePort := doctorsClientOf(t, ws, harness.ConnectorBody(p.BaseURL+"/mcp", harness.ReadProgrammes),
		"http://localhost:3118/callback")
	for _, c := range []struct {
		url, code string
		user      *demo.User
		args      []string
	}{
		{url: p.BaseURL + "/mcp/", code: "resource_differs"},
		{url: p.AppURL + "/mcp", code: "nothing_there"},
		{url: p.BaseURL + "/v1/programmes/programmes", code: "resource_differs"},
		{url: strings.Replace(p.BaseURL, "localhost", "127.0.0.1", 1) + "/mcp", code: "resource_differs"},
		{url: strings.Replace(p.BaseURL, "http:", "https:", 1) + "/mcp", code: "no_tls"},
		{url: "http://127.0.0.1:1/mcp", code: "connection_refused"},
		{
			url:  p.BaseURL + "/mcp",
			code: "authorize_refused",
			args: []string{"--client-id", client, "--redirect-uri", "http://127.0.0.1:33420/elsewhere"},
		},
		{
			url:  p.BaseURL + "/mcp",
			code: "authorize_refused",
			args: []string{"--client-id", "11111111-2222-4333-8444-555555555555"},
		},
		{
			url:  p.BaseURL + "/mcp",
			code: "token_unknown_client",
			args: []string{"--client-id", "11111111-2222-4333-8444-555555555555"},
		},
		{url: p.BaseURL + "/mcp", code: "other_resource", user: &ws.Owner, args: []string{"--client-id", ofV1}},
		{url: p.BaseURL + "/mcp", code: "confidential_client", args: []string{"--client-id", withSecret}},
		{url: p.BaseURL + "/mcp", code: "port_not_registered",
			args: []string{"--as", "claude-code", "--client-id", ofOnePort}},
		{url: p.BaseURL + "/mcp", code: "needs_registration", args: []string{"--as", "opencode"}},
		{url: p.BaseURL + "/mcp", code: "sign_in_failed", user: &wrong, args: []string{"--client-id", client}},
		{url: p.BaseURL + "/mcp", code: "consent_refused", user: &stranger, args: []string{"--client-id", client}},
		{
			url:  p.BaseURL + "/mcp",
			code: "consent_refused",
			user: &quiet.Owner,
			args: []string{"--client-id", quietClient},
		},
	} {
		d := doctor{t: t, url: c.url}
		if c.user != nil {
			c.args = append(c.args, d.signedIn(*c.user)...)
		}
		found, status := d.diagnose(c.args...)
		if _, ok := found.code(c.code); !ok || status != 1 || found.Verdict != "fail" {
			t.Errorf("%s %s: status %d, %v", c.url, c.code, status, found.bad())
		}
		for _, f := range found.Findings {
			if f.Code == c.code && (f.Says == "" || f.Effect == "" || f.Mend == "") {
				t.Errorf("%s: no remedy", c.code)
			}
		}
	}
}

// Invalid options have exit status 2, and nothing is sent.
func TestDoctor_RejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, args := range [][]string{
		{"--as", "nobody"},
		{"--email", "ada@example.org"},
		{"--password-file", "no/such/file", "--email", "ada@example.org"},
		{"--as", "claude", "--browser"},
		{"--password", "secret"},
		{"--redirect-uri", "callback"},
	} {
		d := doctor{t: t, url: p.BaseURL + "/mcp"}
		if out, status := d.run(args...); status != 2 || strings.Contains(out, "1 Reach") {
			t.Errorf("%v: status %d", args, status)
		}
	}
	for _, url := range []string{
		"localhost", "ftp://localhost/mcp", "http://ada:secret@localhost/mcp", p.BaseURL + "/mcp?key=secret",
	} {
		d := doctor{t: t, url: url, secret: "secret"}
		if _, status := d.run(); status != 2 {
			t.Errorf("%s: status %d", url, status)
		}
	}
}
