package containers

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const healthyWithin = 90 * time.Second

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// tool returns a command of the stores' programs, which Debian installs outside PATH and `make test` may install in a
// private directory.
func tool(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	private := filepath.Join(os.Getenv("ALMONER_TEST_TOOLS"), "root")
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/bin",
		"/usr/local/bin",
		private + "/usr/lib/postgresql/*/bin",
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
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(server.Stop)
	address, err := url.Parse(server.URL)
	if err != nil {
		h.t.Fatal(err)
	}
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

// newLoginsConnect checks that a new login of the same group may connect, because runbooks/keys.md replaces logins that
// way.
func (h *host) newLoginsConnect(database string) {
	h.t.Helper()
	for _, group := range []string{"almoner_authserver", "almoner_resourceapi"} {
		h.psql(
			database,
			"-c",
			"create role next_"+group+" login in role "+group,
			"-c",
			"do $$ begin if not has_database_privilege('next_"+group+"', current_database(), 'connect') then raise "+
				"'a new login of "+group+" may not connect'; end if; end $$",
			"-c",
			"drop role next_"+group,
		)
	}
}

func (h *host) psql(database string, arguments ...string) {
	h.t.Helper()
	output, err := tool(
		h.t,
		"psql",
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
	server := tool(
		h.t,
		h.project.Services["redis"].Command[0],
		append(arguments, "--port", port, "--bind", "127.0.0.1")...)
	if err := server.Start(); err != nil {
		h.t.Fatal(err)
	}
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

// eventually repeats a check until it returns "", for at most healthyWithin.
func (h *host) eventually(what string, wrong func() string) {
	h.t.Helper()
	await.NoError(h.t, healthyWithin, func() error {
		if problem := wrong(); problem != "" {
			return fmt.Errorf("%s: %s", what, problem)
		}
		return nil
	})
}

// A container is one service of the compose file.
type container struct {
	image
	host    *host
	service types.ServiceConfig
	places  *strings.Replacer
}

// container gives a service a root directory with its image and only its own secrets.
func (h *host) container(name string) container {
	h.t.Helper()
	s := h.project.Services[name]
	from := h.images[s.Build.Target]
	c := container{image: image{root: newDir(h.t), entrypoint: from.entrypoint, user: from.user}, host: h, service: s}
	err := filepath.WalkDir(from.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from.root, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(c.root, relative))
	})
	if err != nil {
		h.t.Fatal(err)
	}
	places := []string{
		"//authserver:8081",
		h.places["//authserver:8081"],
		":9090",
		freeAddress(h.t),
		"127.0.0.1:8083",
		freeAddress(h.t),
		":8081",
		h.own[name],
		":8082",
		h.own[name],
	}
	c.places = strings.NewReplacer(places...)
	stores := strings.NewReplacer("postgres:5432", h.places["postgres:5432"], "redis:6379", h.places["redis:6379"])
	if err := os.MkdirAll(filepath.Join(c.root, "run/secrets"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, secret := range s.Secrets {
		path, content := filepath.Join(c.root, "run/secrets", secret.Source), stores.Replace(h.secret(secret.Source))
		if err := os.WriteFile(path, []byte(content), 0o444); err != nil {
			h.t.Fatal(err)
		}
	}
	return c
}

func (c container) environ() []string {
	var pairs []string
	for name, value := range c.service.Environment {
		if value != nil {
			pairs = append(pairs, name+"="+c.places.Replace(*value))
		}
	}
	return pairs
}

// start runs the container's command. stop ends it as an engine does and returns its error.
func (c container) start() (stop func() error) {
	t := c.host.t
	t.Helper()
	var log bytes.Buffer
	command := c.command(t, c.environ(), c.service.Command...)
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		if t.Failed() {
			t.Logf("%s: %s", c.service.Name, log.String())
		}
	})
	return func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Duration(*c.service.StopGracePeriod) + 30*time.Second):
			return fmt.Errorf("the process does not end")
		}
	}
}

// unhealthy returns the error of the container's health check, or "".
func (c container) unhealthy() string {
	test := c.service.HealthCheck.Test
	if test[0] != "CMD" || test[1] != c.entrypoint[0] {
		c.host.t.Fatalf("%s has another health check: %v", c.service.Name, test)
	}
	arguments := make([]string, len(test)-2)
	for i, argument := range test[2:] {
		arguments[i] = c.places.Replace(argument)
	}
	got := c.run(c.host.t, c.environ(), arguments...)
	if got.code == 0 {
		return ""
	}
	return got.stderr
}

// TestCompose_StartsAndStops starts what the compose file says, from an empty database to healthy processes, which
// end in time after SIGTERM.
func TestCompose_StartsAndStops(t *testing.T) {
	assemble(t, "authserver").run(t, nil, "--version") // skips the test if programs cannot run here
	h := newHost(t)
	for _, job := range []string{"migrate-authserver", "migrate-resourceapi"} {
		c := h.container(job)
		if got := c.run(t, c.environ(), c.service.Command...); got.code != 0 {
			t.Fatalf("%s: %s", job, got.stderr)
		}
	}
	stops := map[string]func() error{}
	for _, name := range []string{"authserver-1", "authserver-2", "resourceapi-1", "resourceapi-2", "worker"} {
		c := h.container(name)
		if got := c.run(t, c.environ(), "check-config"); got.code != 0 ||
			strings.Contains(got.stdout, h.secret("redis_password")) {
			t.Fatalf("%s: %s", name, got.stderr)
		}
		if c.unhealthy() == "" {
			t.Errorf("%s is healthy before it runs", name)
		}
		stops[name] = c.start()
		h.eventually(name, c.unhealthy)
	}
	h.answers()
	h.storesAreHealthy()
	h.redisKeepsWhatItIsTold()
	for _, name := range slices.Sorted(maps.Keys(stops)) {
		if err := stops[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// answers checks responses that need the parts to be connected.
func (h *host) answers() {
	h.t.Helper()
	metadata := "http://" + h.own["authserver-1"] + "/.well-known/oauth-authorization-server"
	for path, want := range map[string]string{
		metadata: `"issuer":"https://api.example.org"`,
		"http://" + h.own["authserver-2"] + "/v1/account/oauth/jwks":     `"keys"`,
		"http://" + h.own["resourceapi-1"] + "/v1/programmes/programmes": "UNAUTHENTICATED",
	} {
		response, err := http.Get(path)
		if err != nil {
			h.t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			h.t.Errorf("%s: %s %s %v", path, response.Status, body, err)
		}
	}
}

// storesAreHealthy runs the stores' health checks, at the ports used here.
func (h *host) storesAreHealthy() {
	h.t.Helper()
	_, port, _ := net.SplitHostPort(h.places["postgres:5432"])
	test := h.project.Services["postgres"].HealthCheck.Test
	h.eventually("the health check of PostgreSQL", func() string {
		return complaint(tool(h.t, test[1], append(slices.Clone(test[2:]), "--port="+port)...))
	})
	_, port, _ = net.SplitHostPort(h.places["redis:6379"])
	client := tool(h.t, "redis-cli")
	places := strings.NewReplacer("/run/secrets/", h.secrets+"/", "redis-cli", client.Path+" -p "+port)
	script := places.Replace(h.project.Services["redis"].HealthCheck.Test[1])
	h.eventually("the health check of Redis", func() string {
		shell := exec.CommandContext(h.t.Context(), "sh", "-c", script)
		shell.Env = client.Env
		return complaint(shell)
	})
}

// complaint returns the error and output of a failed command, or "".
func complaint(command *exec.Cmd) string {
	output, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%v %s", err, output)
}

func (h *host) redisKeepsWhatItIsTold() {
	h.t.Helper()
	_, port, _ := net.SplitHostPort(h.places["redis:6379"])
	for name, want := range map[string]string{
		"appendonly":       "yes",
		"appendfsync":      "everysec",
		"maxmemory-policy": "noeviction",
		"maxmemory":        "536870912",
	} {
		if output, err := h.redis(port, "config", "get", name); err != nil || output != name+"\n"+want+"\n" {
			h.t.Errorf("%q %v", output, err)
		}
	}
	output, _ := tool(h.t, "redis-cli", "-p", port, "ping").CombinedOutput()
	if !strings.Contains(string(output), "NOAUTH") {
		h.t.Errorf("Redis replies without a password: %s", output)
	}
}
