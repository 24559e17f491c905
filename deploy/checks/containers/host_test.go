package containers

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A host does what an engine does with the compose file: it prepares the stores, gives each container its files and
// environment, and starts the programs in order. Only addresses differ, since all share this machine's network.
type host struct {
	t       *testing.T
	project *types.Project
	secrets string // directory
	images  map[string]image
	places  map[string]string // in the compose file → here
	own     map[string]string // service → address
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := localstore.FreePort()
	must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{
		t:       t,
		project: project(t),
		secrets: filepath.Join(newDir(t), "secrets"),
		images:  map[string]image{},
		places:  map[string]string{},
		own:     map[string]string{},
	}
	makeSecrets(t, h.secrets)
	for _, service := range services() {
		h.images[service] = assemble(t, service)
	}
	for _, name := range []string{"authserver-1", "authserver-2", "resourceapi-1", "resourceapi-2"} {
		h.own[name] = freeAddress(t)
	}
	h.places["postgres:5432"] = h.startPostgres()
	h.places["redis:6379"] = h.startRedis()
	h.places["//authserver:8081"] = "//" + h.own["authserver-2"]
	return h
}

func (h *host) secret(name string) string {
	h.t.Helper()
	content, err := os.ReadFile(filepath.Join(h.secrets, name))
	must(h.t, err)
	return strings.TrimSpace(string(content))
}

// tool returns a command of the stores' programs, which Debian installs outside PATH and `make test` may install in a
// private directory.
func tool(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	private := filepath.Join(os.Getenv("ALMONER_TEST_TOOLS"), "root")
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/bin", "/usr/local/bin", private + "/usr/lib/postgresql/*/bin",
		private + "/usr/bin",
	} {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // the one error is a malformed pattern
		if len(found) == 0 {
			continue
		}
		command := exec.CommandContext(t.Context(), found[0], arguments...)
		libraries, _ := filepath.Glob(private + "/usr/lib/*-linux-gnu*")
		command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return command
	}
	t.Fatalf("%s is not installed", name)
	return nil
}

// startPostgres starts a private server, since roles belong to a whole server, and makes psql run the initialization
// files of the compose file.
func (h *host) startPostgres() string {
	h.t.Helper()
	server, err := localstore.StartPostgres(h.t.Context(), localstore.Options{
		Dir: filepath.Join(newDir(h.t), "postgres"), Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true,
	})
	must(h.t, err)
	h.t.Cleanup(server.Stop)
	address, err := url.Parse(server.URL)
	must(h.t, err)
	database := h.project.Services["postgres"].Environment["POSTGRES_DB"]
	h.psql(server.URL, "-c", "create database "+*database)
	address.Path = "/" + *database
	for _, mount := range h.project.Services["postgres"].Volumes {
		if strings.HasPrefix(mount.Target, "/docker-entrypoint-initdb.d/") {
			h.psql(address.String(), "-v", "secrets="+h.secrets, "-f", mount.Source)
		}
	}
	h.newLoginsConnect(address.String())
	return address.Host
}

// newLoginsConnect checks that a new login of the same group may connect, because
// runbooks/store-passwords.md replaces logins that way.
func (h *host) newLoginsConnect(database string) {
	h.t.Helper()
	for _, group := range []string{"almoner_authserver", "almoner_resourceapi"} {
		h.psql(database, "-c", "create role next_"+group+" login in role "+group, "-c",
			"do $$ begin if not has_database_privilege('next_"+group+"', current_database(), 'connect') then raise "+
				"'a new login of "+group+" may not connect'; end if; end $$", "-c", "drop role next_"+group)
	}
}

func (h *host) psql(database string, arguments ...string) {
	h.t.Helper()
	output, err := tool(h.t, "psql",
		slices.Concat([]string{"--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", database}, arguments)...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("psql %v: %v: %s", arguments, err, output)
	}
	for _, name := range []string{"owner_password", "authserver_password", "resourceapi_password"} {
		if bytes.Contains(output, []byte(h.secret(name))) {
			h.t.Errorf("psql prints the %s", name)
		}
	}
}

// startRedis starts Redis with the arguments of the compose file.
func (h *host) startRedis() string {
	h.t.Helper()
	address := freeAddress(h.t)
	_, port, _ := net.SplitHostPort(address)
	var arguments []string
	for _, argument := range h.project.Services["redis"].Command[1:] {
		switch {
		case argument == "/data":
			argument = newDir(h.t)
		case strings.HasPrefix(argument, "/run/secrets/"):
			argument = filepath.Join(h.secrets, filepath.Base(argument))
		}
		arguments = append(arguments, argument)
	}
	server := tool(h.t, h.project.Services["redis"].Command[0],
		append(arguments, "--port", port, "--bind", "127.0.0.1")...)
	must(h.t, server.Start())
	h.t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	h.eventually("Redis", func() string {
		reply, _ := h.redis(port, "ping")
		return strings.TrimSuffix(reply, "PONG\n")
	})
	return address
}

func (h *host) redis(port string, arguments ...string) (string, error) {
	command := tool(h.t, "redis-cli", append([]string{"-p", port}, arguments...)...)
	command.Env = append(command.Env, "REDISCLI_AUTH="+h.secret("redis_password"))
	output, err := command.CombinedOutput()
	return string(output), err
}
