package containers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/net/version"
)

const uid = 65532 // the images' user

// command returns a command that runs the image's program in the image's root directory, as the image's user.
func (i image) command(t *testing.T, environ []string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, i.entrypoint[0], append(i.entrypoint[1:], arguments...)...)
	command.Dir, command.Env = "/", append([]string{}, environ...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		return command
	}
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
	command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getegid(), Size: 1}}
	return command
}

// output is the result of a command that has ended.
type output struct {
	code           int
	stdout, stderr string
}

func (i image) run(t *testing.T, environ []string, arguments ...string) output {
	t.Helper()
	command := i.command(t, environ, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if errors.Is(err, syscall.EPERM) ||
		errors.Is(err, syscall.ENOSPC) { // no right to chroot; no user namespaces at all
		t.Skip("this needs root, or user namespaces: " + err.Error())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestImage_ProgramRunsWithoutOtherFiles(t *testing.T) {
	for _, service := range services() {
		i := assemble(t, service)
		got := i.run(t, nil, "--version")
		if got.code != 0 || !strings.HasPrefix(got.stdout, service+" "+version.Number+", commit "+commit+", go1.") ||
			got.stderr != "" {
			t.Errorf("%s --version: %+v", service, got)
		}
		// Refusals are one line, without the trace of a panic.
		for _, c := range []struct {
			arguments, says string
			environ         []string
		}{
			{"check-config", "ALMONER_BASE_URL is not set", nil},
			{"serve", "ALMONER_BASE_URL is not set", nil},
			{"migrate", "ALMONER_DATABASE_URL is not set", nil},
			{"healthcheck", "no response from 127.0.0.1:1", []string{"ALMONER_LISTEN=127.0.0.1:1"}},
			{"healthcheck 127.0.0.1:1", "no response from 127.0.0.1:1", []string{"ALMONER_LISTEN=:9"}},
		} {
			got := i.run(t, c.environ, strings.Fields(c.arguments)...)
			if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, c.says) ||
				strings.Contains(got.stderr, "goroutine") {
				t.Errorf("%s %s: %+v", service, c.arguments, got)
			}
		}
	}
}

// eventually repeats a check until it returns "".
func (h *host) eventually(what string, wrong func() string) {
	h.t.Helper()
	await.NoError(h.t, func() error {
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
	must(h.t, os.CopyFS(c.root, os.DirFS(from.root)))
	places := []string{
		"//authserver:8081", h.places["//authserver:8081"], ":9090", freeAddress(h.t), "127.0.0.1:8083",
		freeAddress(h.t), ":8081", h.own[name], ":8082", h.own[name],
	}
	c.places = strings.NewReplacer(places...)
	stores := strings.NewReplacer("postgres:5432", h.places["postgres:5432"], "redis:6379", h.places["redis:6379"])
	must(h.t, os.MkdirAll(filepath.Join(c.root, "run/secrets"), 0o755))
	for _, secret := range s.Secrets {
		path, content := filepath.Join(c.root, "run/secrets", secret.Source), stores.Replace(h.secret(secret.Source))
		must(h.t, os.WriteFile(path, []byte(content), 0o444))
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
	must(t, command.Start())
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
			strings.Contains(got.stdout, h.redisPassword("redis_url")) ||
			strings.Contains(got.stdout, h.redisPassword("resourceapi_redis_url")) {
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
	h.redisUsersKeepToTheirOwn()
	var ends sync.WaitGroup
	for name, stop := range stops {
		ends.Go(func() {
			if err := stop(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	ends.Wait()
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
		must(h.t, err)
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

// redisPassword returns the password in the URL of a secret.
func (h *host) redisPassword(name string) string {
	h.t.Helper()
	parsed, err := url.Parse(h.secret(name))
	must(h.t, err)
	password, _ := parsed.User.Password()
	return password
}

// redisUsersKeepToTheirOwn checks that the Redis user of a service can do nothing with the keys of the other, nor what
// an operator does.
func (h *host) redisUsersKeepToTheirOwn() {
	h.t.Helper()
	_, port, _ := net.SplitHostPort(h.places["redis:6379"])
	urls := map[string]string{"authserver": "redis_url", "resourceapi": "resourceapi_redis_url"}
	for user, attempts := range map[string]map[string]bool{
		"authserver": {
			"hset g:{x} st active": true, "zadd t:x 1 a": true, "set rate:x 1": true, "set o:x 1": true, "ping": true,
			"zadd events:x 1 a": false, "get other": false,
		},
		"resourceapi": {
			"zadd events:x 1 a": true, "ping": true,
			"hset g:{x} st active": false, "hget g:{x} st": false, "zadd t:x 1 a": false, "set rate:x 1": false,
		},
	} {
		for _, operators := range []string{
			"keys *", "flushall", "config get dir", "acl list", "client list", "script flush", "subscribe x", "info",
		} {
			attempts[operators] = false
		}
		for attempt, may := range attempts {
			arguments := append([]string{"-p", port, "--user", user}, strings.Fields(attempt)...)
			command := tool(h.t, "redis-cli", arguments...)
			command.Env = append(command.Env, "REDISCLI_AUTH="+h.redisPassword(urls[user]))
			output, _ := command.CombinedOutput()
			if refused := strings.Contains(string(output), "NOPERM"); refused == may {
				h.t.Errorf("%s: %s: %s", user, attempt, output)
			}
		}
	}
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
