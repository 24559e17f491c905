package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A terminal runs the built command.
type terminal struct {
	t       *testing.T
	binary  string
	environ []string
}

type output struct {
	code        int
	out, errors string
}

// programs is the directory of the command that command builds.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "almoner-authserver-"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// command returns the path of the command, which it builds once unless `make test` has built it.
var command = sync.OnceValues(func() (path string, err error) {
	if dir := os.Getenv("ALMONER_TEST_BINARIES"); dir != "" {
		return filepath.Join(dir, "authserver"), nil
	}
	path = filepath.Join(programs, "authserver")
	build := exec.Command("go", "build", "-o", path, ".")
	// As in a release, and already compiled where the race detector needs C.
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func open(t *testing.T, environ ...string) terminal {
	t.Helper()
	binary, err := command()
	if err != nil {
		t.Fatal(err)
	}
	return terminal{t, binary, environ}
}

func (term terminal) run(input string, args ...string) output {
	term.t.Helper()
	run := exec.CommandContext(term.t.Context(), term.binary, append([]string{"admin"}, args...)...)
	run.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, term.environ...)
	run.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	run.Stdout, run.Stderr = &out, &errs
	err := run.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		term.t.Fatal(err)
	}
	return output{run.ProcessState.ExitCode(), out.String(), errs.String()}
}

// value runs with --json and returns one value of the object.
func (term terminal) value(name string, args ...string) string {
	term.t.Helper()
	got := term.run("", append([]string{"--json"}, args...)...)
	values := map[string]any{}
	if err := json.Unmarshal([]byte(got.out), &values); got.code != 0 || err != nil || got.errors != "" {
		term.t.Fatalf("%v: %d %s", args, got.code, got.errors)
	}
	text, _ := values[name].(string)
	return text
}

func TestAdmin_SetsUpWorkspace(t *testing.T) {
	data := fixture.New(t)
	term := open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver)
	organisation := term.value("id", "organisations", "add", "Harbour Trust")
	workspace := term.value("id", "tenants", "add", "--organisation", organisation, "Harbour Kitchen")
	user := term.value("id", "users", "add", "--email", "ada@example.org", "--name", "Ada Okafor")
	for _, args := range [][]string{
		{"modules", "set", workspace, "programmes", "enable", "provision"},
		{"features", "set", workspace, "llm_integration", "on"},
		{"members", "add", workspace, "ada@example.org", string(perm.ProgrammesRead), string(perm.AccountAPIAccess)},
		{"members", "set-permissions", workspace, user, string(perm.ProgrammesRead)},
	} {
		if got := term.run("", args...); got.code != 0 || got.out == "" || got.errors != "" {
			t.Errorf("%v: %d %s%s", args, got.code, got.out, got.errors)
		}
	}
	const password = "correct horse battery staple"
	if got := term.run(password+"\n", "users", "set-password", "ada@example.org"); got.code != 0 ||
		strings.Contains(got.out+got.errors, password) {
		t.Errorf("set-password: %d %s", got.code, got.errors)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"organisations", "list"}, []string{"NAME", "Harbour Trust"}},
		{[]string{"tenants", "list"}, []string{"Harbour Kitchen", "programmes", "llm_integration"}},
		{[]string{"users", "list"}, []string{"ada@example.org", "set"}},
		{[]string{"members", "list", workspace}, []string{"ada@example.org", "programmes:read:programmes"}},
		{[]string{"members", "appoint-managers"}, []string{"WORKSPACE"}},
		{[]string{"clients", "list"}, []string{"KIND"}},
		{[]string{"grants", "list"}, []string{"STATE"}},
		{[]string{"keys", "list"}, []string{"KID"}},
	} {
		got := term.run("", c.args...)
		for _, want := range c.want {
			if got.code != 0 || !strings.Contains(got.out, want) {
				t.Errorf("%v: %d %q lacks %q; %s", c.args, got.code, got.out, want, got.errors)
			}
		}
		asJSON := term.run("", append(c.args, "--json")...)
		var all []map[string]any
		if err := json.Unmarshal([]byte(asJSON.out), &all); err != nil || asJSON.code != 0 || all == nil {
			t.Errorf("%v --json: %v: %s", c.args, err, asJSON.out)
		}
	}
	if got := term.run("", "members", "remove", workspace, user); got.code != 0 ||
		!strings.Contains(got.out, "0 grants, 0 personal access tokens") {
		t.Errorf("remove: %d %s%s", got.code, got.out, got.errors)
	}
}

func TestAdmin_PrintsSecretOnceToStandardOutput(t *testing.T) {
	data := fixture.New(t)
	term := open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver)
	got := term.run("", "clients", "add-service", "Reporting")
	if got.code != 0 || strings.Count(got.out, "alm_cs_") != 1 || got.errors != "" {
		t.Errorf("%d, %d secrets, %s", got.code, strings.Count(got.out, "alm_cs_"), got.errors)
	}
	if listed := term.run("", "clients", "list", "--json"); strings.Contains(listed.out, "alm_cs_") ||
		!strings.Contains(listed.out, "Reporting") {
		t.Errorf("the list: %s", listed.errors)
	}
}

func TestAdmin_ManagesClients(t *testing.T) {
	data := fixture.New(t)
	term := open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver)
	added := term.run("", "clients", "add", "--workspace", data.WorkspaceID.String(),
		"--redirect-uri", "https://a.example.org/cb?x=1,2", "--redirect-uri", "https://b.example.org/cb",
		"--permission", "programmes:read:programmes,programmes:write:programmes", "Donor sync", "--json")
	var client struct{ ClientID, ClientSecret string }
	if err := json.Unmarshal([]byte(added.out), &client); err != nil || client.ClientSecret == "" {
		t.Fatalf("add: %d %v %s", added.code, err, added.errors)
	}
	file := "clients:\n- id: " + client.ClientID + "\n  kind: confidential\n  workspace: " + data.WorkspaceID.String() +
		"\n  name: Donor sync\n  redirectUris: ['https://a.example.org/cb?x=1,2', 'https://b.example.org/cb']\n" +
		"  requiredPermissions: [programmes:read:programmes, programmes:write:programmes]\n"
	for _, c := range []struct {
		file string
		args []string
		want string
	}{
		{file, []string{"apply", "-f", "-"}, "0 created, 0 changed, 1 unchanged"},
		{"", []string{"clients", "set", client.ClientID, "--name", "Donor import"}, "0 created, 1 changed"},
		{file, []string{"apply", "-f", "-", "--dry-run"}, "(confidential): name"},
		{"", []string{"clients", "replace-secret", client.ClientID, "--expire-old"}, "alm_cs_"},
	} {
		if got := term.run(c.file, c.args...); got.code != 0 || !strings.Contains(got.out, c.want) {
			t.Errorf("%v: %d %d bytes of output lack %q; %s", c.args, got.code, len(got.out), c.want, got.errors)
		}
	}
}

func TestAdmin_BadInputIsOneLineAndFails(t *testing.T) {
	data := fixture.New(t)
	term := open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver)
	workspace := data.WorkspaceID.String()
	for _, c := range []struct{ args, says string }{
		{"organisations add ''", "the name must have"},
		{"tenants add --organisation trust Kitchen", "the organisation id must be a UUID"},
		{"modules set " + workspace + " engage on", "enable, disable, provision or unprovision"},
		{"features set " + workspace + " llm_integration yes", "on or off"},
		{"users add --email ada --name Ada", "e-mail address"},
		{"users disable nobody@example.org", "no user"},
		{"users set-password nobody@example.org", "no user"},
		{"members add " + workspace + " nobody@example.org all", "no user"},
		{"grants revoke-all --issued-before yesterday", "the time must look like"},
		{"grants revoke-all", "select the grants"},
		{"grants revoke-all --all --tenant " + workspace, "select the grants"},
		{"grants revoke x", "the grant id must be a UUID"},
		{"clients delete x", "the client id must be a UUID"},
		{"users disable x", "the user must be a UUID or an e-mail address"},
		{"clients set x --name Reporting", "the client id must be a UUID"},
		{"clients replace-secret x", "the client id must be a UUID"},
		{"clients add --workspace " + workspace + " --redirect-uri http://example.org/ --permission all Sync", "https"},
		{"apply -f /nonexistent/clients.yaml", "no such file"},
		{"keys rotate", "ALMONER_KEYS is not set"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.Trim(args[i], "'")
		}
		got := term.run("a password of some length", args...)
		if got.code == 0 || got.out != "" || strings.Count(got.errors, "\n") != 1 ||
			!strings.Contains(got.errors, c.says) {
			t.Errorf("%s: %d %q %q, want one line that says %q", c.args, got.code, got.out, got.errors, c.says)
		}
	}
	for _, args := range [][]string{
		{},
		{"users"},
		{"nonsense"},
		{"tenants", "add", "Kitchen"},
		{"grants", "list", "--limit", "many"},
		{"grants", "revoke-all", "--issued-before", "2020-01-01T00:00:00Z", "--tenant", ""},
		{"grants", "revoke-all", "--all", "--tenant="},
		{"grants", "list", "--tenant", ""},
	} {
		if got := term.run("", args...); got.code == 0 {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestAdmin_FailsWithoutDatabase(t *testing.T) {
	const password = "secret-of-the-database"
	if got := open(t).run("", "users", "list"); got.code == 0 ||
		!strings.Contains(got.errors, "ALMONER_DATABASE_URL is not set\nSet it in the environment") ||
		!strings.Contains(got.errors, "--config FILE") {
		t.Errorf("%d %s", got.code, got.errors)
	}
	term := open(t, "ALMONER_DATABASE_URL=postgres://almoner:"+password+"@127.0.0.1:1/almoner")
	got := term.run("", "organisations", "add", "Harbour Trust")
	if got.code == 0 || got.out != "" || !strings.Contains(got.errors, "store unavailable") ||
		strings.Contains(got.errors, password) {
		t.Errorf("%d %s%s", got.code, got.out, got.errors)
	}
}
