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

// openShared returns a terminal for the database that the tests of this package share, with a new workspace.
func openShared(t *testing.T) (term terminal, workspace string) {
	t.Helper()
	data := fixture.Shared(t)
	return open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver), data.WorkspaceID.String()
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

// prints requires that a command succeeds and prints the words.
func (term terminal) prints(input string, args []string, words ...string) string {
	term.t.Helper()
	got := term.run(input, args...)
	for _, word := range words {
		if !strings.Contains(got.out, word) {
			term.t.Errorf("%q: %d bytes of output lack %q", args, len(got.out), word) // there may be a secret in it
		}
	}
	if got.code != 0 || got.errors != "" {
		term.t.Errorf("%q: exit status %d: %s", args, got.code, got.errors)
	}
	return got.out
}

// refuses requires that a command fails with one line that has the words, and prints nothing else.
func (term terminal) refuses(args []string, words string) {
	term.t.Helper()
	got := term.run("a password of some length", args...)
	if got.code == 0 || got.out != "" || strings.Count(got.errors, "\n") != 1 || !strings.Contains(got.errors, words) {
		term.t.Errorf("%q: %d %q %q, want one line that says %q", args, got.code, got.out, got.errors, words)
	}
}

func TestAdmin_SetsUpWorkspace(t *testing.T) {
	t.Parallel()
	term, _ := openShared(t)
	organisation := term.value("id", "organisations", "add", "Harbour Trust")
	workspace := term.value("id", "tenants", "add", "--organisation", organisation, "Harbour Kitchen")
	user := term.value("id", "users", "add", "--email", "ada@example.org", "--name", "Ada Okafor")
	for _, args := range [][]string{
		{"modules", "set", workspace, "programmes", "enable", "provision"},
		{"features", "set", workspace, "llm_integration", "on"},
		{"members", "add", workspace, "ada@example.org", string(perm.ProgrammesRead), string(perm.AccountAPIAccess)},
		{"members", "set-permissions", workspace, user, string(perm.ProgrammesRead)},
	} {
		if term.prints("", args) == "" {
			t.Errorf("%v prints nothing", args)
		}
	}
	const password = "correct horse battery staple"
	set := []string{"users", "set-password", "ada@example.org"}
	if strings.Contains(term.prints(password+"\n", set), password) {
		t.Error("set-password prints the password")
	}
	t.Run("lists", func(t *testing.T) {
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
			t.Run(strings.Join(c.args[:2], " "), func(t *testing.T) {
				t.Parallel()
				term := terminal{t, term.binary, term.environ}
				term.prints("", c.args, c.want...)
				var all []map[string]any
				out := term.prints("", append(c.args, "--json"))
				if err := json.Unmarshal([]byte(out), &all); err != nil || all == nil {
					t.Errorf("--json: %v: %s", err, out)
				}
			})
		}
	})
	term.prints("", []string{"members", "remove", workspace, user}, "0 grants, 0 personal access tokens")
}

func TestAdmin_ManagesClientsAndPrintsSecretsOnce(t *testing.T) {
	t.Parallel()
	term, workspace := openShared(t)
	if n := strings.Count(term.prints("", []string{"clients", "add-service", "Reporting"}), "alm_cs_"); n != 1 {
		t.Errorf("%d secrets", n)
	}
	if strings.Contains(term.prints("", []string{"clients", "list", "--json"}, "Reporting"), "alm_cs_") {
		t.Error("the list has a secret")
	}
	added := term.prints("", []string{"clients", "add", "--workspace", workspace,
		"--redirect-uri", "https://a.example.org/cb?x=1,2", "--redirect-uri", "https://b.example.org/cb",
		"--permission", "programmes:read:programmes,programmes:write:programmes", "Donor sync", "--json"})
	var client struct{ ClientID, ClientSecret string }
	if err := json.Unmarshal([]byte(added), &client); err != nil || client.ClientSecret == "" {
		t.Fatalf("add: no secret, or %v", err)
	}
	file := "clients:\n- id: " + client.ClientID + "\n  kind: confidential\n  workspace: " + workspace +
		"\n  name: Donor sync\n  redirectUris: ['https://a.example.org/cb?x=1,2', 'https://b.example.org/cb']\n" +
		"  requiredPermissions: [programmes:read:programmes, programmes:write:programmes]\n"
	term.prints(file, []string{"apply", "-f", "-"}, "0 created, 0 changed, 1 unchanged")
	term.prints("", []string{"clients", "set", client.ClientID, "--name", "Donor import"}, "0 created, 1 changed")
	term.prints(file, []string{"apply", "-f", "-", "--dry-run"}, "(confidential): name")
	term.prints("", []string{"clients", "replace-secret", client.ClientID, "--expire-old"}, "alm_cs_")
}

func TestAdmin_BadInputIsOneLineAndFails(t *testing.T) {
	t.Parallel()
	term, workspace := openShared(t)
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
		{"connector-policy set " + workspace, ""},
		{"connector-policy set " + workspace + " --days=0", ""},
		{"connector-policy set " + workspace + " --platforms=gemini", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			terminal{t, term.binary, term.environ}.refuses(words(c.args), c.says)
		})
	}
	for _, args := range []string{
		"", "users", "nonsense", "tenants add Kitchen", "grants list --limit many", "grants list --tenant ''",
		"grants revoke-all --issued-before 2020-01-01T00:00:00Z --tenant ''", "grants revoke-all --all --tenant=",
	} {
		t.Run("usage "+args, func(t *testing.T) {
			t.Parallel()
			if got := (terminal{t, term.binary, term.environ}).run("", words(args)...); got.code == 0 {
				t.Errorf("it is accepted: %s", got.out)
			}
		})
	}
}

// words splits a command line. Two quotation marks are an empty word.
func words(line string) []string {
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	return args
}

func TestAdmin_FailsWithoutDatabase(t *testing.T) {
	t.Parallel()
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
		t.Errorf("%d %s", got.code, got.out)
	}
}

func TestAdmin_ShowsAndSetsConnectorPolicy(t *testing.T) {
	t.Parallel()
	term, workspace := openShared(t)
	show := []string{"connector-policy", "show", workspace}
	set := func(options ...string) []string {
		return append([]string{"connector-policy", "set", workspace}, options...)
	}
	term.prints("", show, "claude, chatgpt, other", "30")
	term.prints("", set("--platforms", "claude,other", "--days=7", "--dry-run"), "nothing was changed.")
	term.prints("", set("--platforms", "claude,other", "--days=7"), "Changed the policy: platforms claude, other;")
	out := term.prints("", append(show, "--json"))
	var shown struct {
		Platforms, Permissions []string
		Days                   int
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Platforms) != 2 || shown.Days != 7 ||
		len(shown.Permissions) == 0 {
		t.Errorf("%v: %s", err, out)
	}
}
