package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// givenDatabase creates an empty database in the tests' server, for a user who may or may not create roles.
func givenDatabase(t *testing.T, mayCreateRoles bool) string {
	t.Helper()
	db := testkit.NewDatabase(t)
	name := fmt.Sprintf("given_%d", time.Now().UnixNano())
	option := "nocreaterole"
	if mayCreateRoles {
		option = "createrole"
	}
	execute(t, db.Superuser, "create role "+name+" login password 'given' "+option)
	if mayCreateRoles { // as if the user had created the group roles
		execute(t, db.Superuser, "grant almoner_authserver, almoner_resourceapi to "+name+" with admin option")
	}
	execute(t, db.Superuser, "create database "+name+" owner "+name)
	t.Cleanup(func() {
		execute(t, db.Superuser, "drop database "+name+" with (force)")
		execute(t, db.Superuser, "drop role "+name)
	})
	url, err := withLogin(db.Superuser, name, "given", name)
	must(t, err)
	return url
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	db := testkit.Connect(t, url)
	if _, err := db.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestStart_UsesGivenStores(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = givenDatabase(t, true), testkit.NewRedis(t).URL
	s := start(t, options)
	if s.Postgres != nil || s.Redis != nil {
		t.Error("a private store was started")
	}
	if status, body := listProgrammes(t, s); status != http.StatusOK {
		t.Errorf("%d %.200s", status, body)
	}
	for _, service := range []string{authserver, resourceapi} {
		if url := s.logins[service]; url == options.DatabaseURL || !strings.Contains(url, "_"+service+":") {
			t.Errorf("%s does not connect as its own role", service)
		}
	}
	s.Stop()
	again := start(t, options)
	if again.Demo.Users != s.Demo.Users || again.Demo.Clients.Confidential != s.Demo.Clients.Confidential ||
		again.Demo.Clients.Service != s.Demo.Clients.Service {
		t.Error("the second start has other demo data")
	}
	again.Stop()
	t.Cleanup(func() { dropLogins(t, again) })
}

// dropLogins removes an installation's roles from the tests' server after its database is dropped.
func dropLogins(t *testing.T, s *Stack) {
	for _, service := range []string{authserver, resourceapi} {
		execute(t, testkit.NewDatabase(t).Superuser, "drop role almoner_"+s.home.seed.Fingerprint()[:8]+"_"+service)
	}
}

func TestStart_RefusesForeignDatabase(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = testkit.NewDatabase(t).Owner, testkit.NewRedis(t).URL
	_, err := Start(t.Context(), options)
	if !errors.Is(err, demo.ErrForeign) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestStart_NamesMissingDatabaseRight(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = givenDatabase(t, false), testkit.NewRedis(t).URL
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "may not create roles") {
		t.Errorf("got %v", err)
	}
}

// blocks returns the lines of a page that can be pasted.
func blocks(t *testing.T, page string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../..", page))
	must(t, err)
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
		all = append(all, block[1])
	}
	return all
}

// The lines of webhooks.md work as they are when pasted: the receiver gets a test event and an event.
func TestStart_DeliversWebhooksToThisMachine(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the lines need python3")
	}
	options := optionsFor(t, usedHome(t))
	options.LocalReceivers = true
	s := start(t, options)
	port, err := localstore.FreePort()
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(options.Home, filepath.Join(dir, ".almoner")))
	variables, receive := blocks(t, "README.md")[0], blocks(t, "deploy/docs/webhooks.md")[0]
	const event = `"type":"programme.created"`
	const arrived = "n=0; until grep -q '" + event + "' printed || [ $n = 60 ]; do sleep 1; n=$((n+1)); done"
	script := "set -eu\n" + variables +
		strings.NewReplacer("8443", fmt.Sprint(port), "sleep 3", arrived).Replace(receive)
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(python)+":"+os.Getenv("PATH"))
	printed, err := os.Create(filepath.Join(dir, "printed"))
	must(t, err)
	command.Stdout, command.Stderr = printed, printed
	err = errors.Join(command.Run(), printed.Close())
	out, readErr := os.ReadFile(printed.Name())
	if err := errors.Join(err, readErr); err != nil {
		t.Fatalf("%v (%d bytes of output)", err, len(out))
	}
	for _, want := range []string{`"type":"webhook.test"`, `evt_` + s.Demo.Workspaces.Main.ID, event} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the receiver did not print %s", want)
		}
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		if info, err := os.Stat(filepath.Join(options.Home, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without the option, as in a deployment, this machine is refused. The commands of both programs work with the settings
// that the start writes, and say what to do if the database refuses the role.
func TestStart_WritesSettingsForCommands(t *testing.T) {
	t.Parallel()
	s := start(t, optionsFor(t, usedHome(t)))
	const receiver = `{"url":"https://localhost:8443/","types":["programme.created"]}`
	if status, body := call(t, s, http.MethodPost, "/v1/webhooks", receiver); status != http.StatusBadRequest {
		t.Errorf("a receiver on this machine: status %d %s, want 400", status, body)
	}
	list := []string{"admin", "users", "list"}
	show := []string{"retention", "show"}
	for _, c := range []struct {
		program, file string
		args          []string
		want          string // in the error, or "" if the command works
	}{
		{authserver, s.AdminFile(), list, ""},
		{resourceapi, s.ResourceapiFile(), show, ""},
		{authserver, s.ResourceapiFile(), list, "member of almoner_authserver"},
		{resourceapi, s.AdminFile(), show, "member of almoner_resourceapi"},
	} {
		args := append([]string{"--config", c.file}, c.args...)
		command := exec.CommandContext(t.Context(), filepath.Join(s.options.Binaries, c.program), args...)
		command.Env = []string{}
		out, err := command.CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %v: %v (%d bytes of output)", c.program, c.args, err, len(out))
		}
		if info, err := os.Stat(c.file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}
