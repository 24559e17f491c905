package runbooks

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// An operator has a running installation, the files that deploy/runbooks/README.md requires, and a shell.
type operator struct {
	*harness.Product
	running *stack.Stack
	etc     string
	secrets string
	backups string
	environ []string
	path    string         // PATH of the blocks
	changes map[string]int // that wantsChanged saw, by log and setting
	steps   timed          // of a restore
}

// newOperator returns the operator of an installation of its own.
func newOperator(t *testing.T, options harness.Options) *operator {
	t.Helper()
	options.StopsStores = true
	running := harness.Private(t, options)
	home, err := localstore.TempDir("almoner-runbooks-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	o := &operator{
		Product: harness.NewProduct(t, running, &met),
		running: running,
		etc:     filepath.Join(home, "etc"),
		backups: filepath.Join(home, "backups"),
		changes: map[string]int{},
	}
	must(t, os.Chmod(home, 0o711)) // PostgreSQL's user must be able to enter it
	o.secrets = filepath.Join(o.etc, "secrets")
	for _, dir := range []string{o.etc, o.secrets, o.backups, filepath.Join(o.backups, "wal")} {
		must(t, os.Mkdir(dir, 0o700))
	}
	o.writeFiles(t)
	runbooks, err := filepath.Abs(folder)
	must(t, err)
	tools, environ, err := localstore.Tools(os.Getenv("ALMONER_TEST_TOOLS"))
	must(t, err)
	binaries := filepath.Join(home, "bin") // which other users can enter
	must(t, os.Mkdir(binaries, 0o755))
	for _, program := range []string{"authserver", "resourceapi"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(running.Authserver()), program))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(binaries, program), content, 0o755))
	}
	o.path = strings.Join(append(append([]string{binaries}, tools...), "/usr/local/bin", "/usr/bin", "/bin"), ":")
	redis := o.address(t, running.RedisURL)
	o.environ = append(environ, "PATH="+o.path, "LANG=C.UTF-8", "TZ=UTC", "HOME="+home, "ETC="+o.etc,
		"SECRETS="+o.secrets, "BACKUPS="+o.backups, "ARCHIVE="+filepath.Join(o.backups, "wal"), "RUNBOOKS="+runbooks,
		"PGDATA="+o.data(), "REDIS_HOST="+redis.Hostname(), "REDIS_PORT="+redis.Port(), "API="+running.BaseURL,
		"APP="+running.AppURL, "AUTHSERVER="+running.Authservers[0].URL)
	return o
}

func (o *operator) data() string { return filepath.Join(o.running.StoreDir(), "postgres", "data") }

func (o *operator) address(t *testing.T, text string) *url.URL {
	t.Helper()
	address, err := url.Parse(text)
	if err != nil {
		t.Fatal("the URL of a store cannot be parsed")
	}
	return address
}

// writeFiles writes the files that the README lists, with their owners.
func (o *operator) writeFiles(t *testing.T) {
	t.Helper()
	o.writeServices(t, map[string]*url.URL{
		"almoner":       o.address(t, o.running.DatabaseURL),
		"almoner_admin": o.address(t, o.running.Postgres.URL),
	})
	redisPassword, _ := o.address(t, o.running.RedisURL).User.Password()
	files := map[string]string{
		"secrets/redis-password": redisPassword + "\n", "secrets/owner-database-url": o.running.DatabaseURL + "\n",
	}
	for name, service := range o.services() {
		for setting, file := range secretsOf(name) {
			files["secrets/"+file] = service[0].Setting(setting) + "\n"
		}
	}
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(o.etc, name), []byte(content), 0o600))
	}
	o.chown(t, *o.self(), o.etc, o.backups)
	o.chown(t, *o.postgresUser(t), filepath.Join(o.backups, "wal"), filepath.Join(o.etc, passwordsOfPostgres))
	if os.Geteuid() == 0 {
		must(t, os.Chmod(o.etc, 0o755))
		must(t, os.Chmod(o.backups, 0o770|os.ModeSticky))
		must(t, os.Chown(o.backups, int(o.self().Uid), int(o.postgresUser(t).Gid)))
	}
}

// writeSecret writes a file as the operator would.
func (o *operator) writeSecret(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(o.secrets, name)
	must(t, os.WriteFile(path, []byte(content+"\n"), 0o600))
	o.chown(t, *o.self(), path)
}

// readSecret returns the content of a file without the last newline.
func (o *operator) readSecret(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(o.secrets, name))
	must(t, err)
	return strings.TrimSpace(string(content))
}

// chown gives files and folders to a user, if the test runs as root.
func (o *operator) chown(t *testing.T, to syscall.Credential, names ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range names {
		must(t, filepath.WalkDir(name, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, int(to.Uid), int(to.Gid))
		}))
	}
}

// self returns the user who runs the blocks, if the test runs as root: a user other than root and postgres.
func (o *operator) self() *syscall.Credential { return &syscall.Credential{Uid: 65534, Gid: 65534} }

// passwordsOfPostgres is the password file of the user postgres.
const passwordsOfPostgres = "pgpass-postgres"

// writeServices writes psql's service file with the database names of the pages, and the password file.
func (o *operator) writeServices(t *testing.T, databases map[string]*url.URL) {
	t.Helper()
	var services, passwords strings.Builder
	for name, address := range databases {
		host, port, user := address.Hostname(), address.Port(), address.User.Username()
		password, _ := address.User.Password()
		fmt.Fprintf(&services, "[%s]\nhost=%s\nport=%s\ndbname=%s\nuser=%s\n", name, host, port,
			strings.TrimPrefix(address.Path, "/"), user)
		fmt.Fprintf(&passwords, "%s:%s:*:%s:%s\n", host, port, user, password)
	}
	must(t, os.WriteFile(filepath.Join(o.etc, "pg_service.conf"), []byte(services.String()), 0o644))
	for _, name := range []string{"pgpass", passwordsOfPostgres} { // those that are there keep their owners
		must(t, os.WriteFile(filepath.Join(o.etc, name), []byte(passwords.String()), 0o600))
	}
}

// postgresUser returns the owner of PostgreSQL's data directory.
func (o *operator) postgresUser(t *testing.T) *syscall.Credential {
	t.Helper()
	known, err := os.Stat(o.data())
	must(t, err)
	owner := known.Sys().(*syscall.Stat_t)
	return &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
}

func (o *operator) services() map[string][]*stack.Service {
	return map[string][]*stack.Service{"authserver": o.running.Authservers, "resourceapi": {o.running.Resourceapi}}
}

// run runs one block of a page with additional environment variables, as a shell does into which it is pasted, and
// returns its output.
func (o *operator) run(t *testing.T, page, name string, further ...string) string {
	t.Helper()
	return o.runWithInput(t, page, name, "", further...)
}

// runWithInput is run with standard input. The block has no terminal, so a prompt reads standard input.
func (o *operator) runWithInput(t *testing.T, page, name, input string, further ...string) string {
	t.Helper()
	if _, before := failed.LoadOrStore(page+"#"+name, true); !before {
		o.failEach(t, page, name, input, further...)
	}
	out, complaint, err := o.try(t, page, name, input, further...)
	if err != nil {
		t.Fatalf("%s#%s: %v\n%s", page, name, err, harness.Redact(out+complaint))
	}
	return out
}

// try is runWithInput for a block that may fail. It also returns what the block prints to standard error.
func (o *operator) try(t *testing.T, page, name, input string, further ...string) (out, complaint string, err error) {
	t.Helper()
	one := blockOf(t, page, name)
	executed.Store(page+"#"+name, true)
	out, complaint, err = o.shell(t.Context(), t, one.asPostgres, input, one.text, further...)
	if found := met.FoundIn([]byte(out + complaint)); len(found) > 0 {
		t.Fatalf("%s#%s prints secrets: %v", page, name, found)
	}
	return out, complaint, err
}

// shell runs lines in a new shell, after the block of the README.
func (o *operator) shell(
	ctx context.Context, t *testing.T, asPostgres bool, input, lines string, further ...string,
) (out, complaint string, err error) {
	t.Helper()
	first, err := blocks("README.md")
	must(t, err)
	begin := first[0]
	executed.Store("README.md#"+begin.name, true)
	command := exec.CommandContext(ctx, "bash", "-c", begin.text+lines)
	command.Env, command.Dir = append(slices.Clone(o.environ), further...), "/"
	command.Stdin, command.SysProcAttr = strings.NewReader(input), &syscall.SysProcAttr{Setsid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) } // with what it runs
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = o.self()
		if asPostgres {
			command.SysProcAttr.Credential = o.postgresUser(t)
		}
	}
	var printed, complained bytes.Buffer
	command.Stdout, command.Stderr = &printed, &complained
	err = command.Run()
	return printed.String(), complained.String(), err
}

func (o *operator) stopServices() {
	for _, each := range o.services() {
		for _, service := range each {
			service.Stop()
		}
	}
}

// startServices restarts all services with the current content of the files.
func (o *operator) startServices(t *testing.T) {
	t.Helper()
	services := o.services()
	// authserver is first, because resourceapi waits for its keys.
	for _, name := range slices.Sorted(maps.Keys(services)) {
		for _, service := range services[name] {
			o.restart(t, name, service)
		}
	}
}

// secretsOf returns the secret settings of a service and the files in which the pages store them.
func secretsOf(service string) map[string]string {
	return map[string]string{
		"ALMONER_DATABASE_URL": service + "-database-url",
		"ALMONER_REDIS_URL":    "redis-url",
		"ALMONER_KEYS":         service + "-keys",
	}
}

// restart restarts one process with the current content of its files.
func (o *operator) restart(t *testing.T, name string, service *stack.Service) {
	t.Helper()
	for setting, file := range secretsOf(name) {
		value := o.readSecret(t, file)
		met.AddSetting(setting, value)
		service.Set(setting, value)
	}
	must(t, service.Restart(context.WithoutCancel(t.Context())))
}

// readFiles makes all services read their secrets from the files, and restarts them.
func (o *operator) readFiles(t *testing.T) {
	t.Helper()
	services := o.services()
	for _, name := range slices.Sorted(maps.Keys(services)) {
		for _, service := range services[name] {
			for setting, file := range secretsOf(name) {
				service.Set(setting, "")
				service.Set(setting+"_FILE", filepath.Join(o.secrets, file))
			}
			must(t, service.Restart(t.Context()))
		}
	}
}

// connect returns a connection to a server as a superuser or an owner, which is closed when the test ends.
func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(harness.Redact(err.Error()))
	}
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	return connection
}

// execute runs statements.
func execute(t *testing.T, connection *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := connection.Exec(t.Context(), sql)
		must(t, err)
	}
}

// wantsChanged waits until each process of the service has logged that it read a new value of the setting since the
// last call.
func (o *operator) wantsChanged(t *testing.T, name, setting string) {
	t.Helper()
	for _, service := range o.services()[name] {
		key := service.Spec.Log + setting
		await.True(t, service.Name+" reads "+setting, func() bool {
			content, err := os.ReadFile(service.Spec.Log)
			must(t, err)
			said := regexp.MustCompile(`"msg":"setting changed"[^\n]*"setting":"`+setting+`"`).FindAll(content, -1)
			if len(said) > o.changes[key] {
				o.changes[key]++
				return true
			}
			return false
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
