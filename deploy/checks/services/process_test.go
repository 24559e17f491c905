// Package services tests how a deployment starts the services: deploy/kubernetes without a cluster, and deploy/systemd
// without a running systemd.
//
// Its tests read from a manifest or unit how a process is started, write the secrets to the files that it names, and
// run the real binary (process_test.go).
package services

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/version"
)

// These are the times that a process takes after SIGTERM, besides ALMONER_NOTICE.
const (
	drain          = 20 * time.Second // for requests in flight: shared/net/web
	importAtWork   = 20 * time.Second // resourceapi/internal/store/postgres
	submissionDone = 15 * time.Second // resourceapi/internal/worker
)

// An invocation is one way to start a binary.
type invocation struct {
	Binary      string // authserver or resourceapi
	Arguments   []string
	Environment map[string]string
}

// repository returns the repository's root.
func repository() string {
	root, err := localstore.RepositoryRoot()
	if err != nil {
		return "."
	}
	return root
}

// binaries returns the directory of both services' binaries. Unless prebuilt binaries exist, it builds them once per
// process.
var binaries = testkit.Once(func(t testing.TB) string {
	if dir := os.Getenv("ALMONER_TEST_BINARIES"); dir != "" {
		return dir
	}
	dir, err := localstore.ProcessDir("almoner-checks-")
	must(t, err)
	for _, name := range []string{"authserver", "resourceapi"} {
		into := dir + string(filepath.Separator)
		build := exec.Command("go", "build", "-tags="+version.BuildTags, "-o", into, "./cmd/"+name)
		build.Dir = filepath.Join(repository(), name)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s does not build: %s", name, out)
		}
	}
	return dir
})

// Path returns the path of the binary.
func (i invocation) Path(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(binaries(t), i.Binary))
	must(t, err)
	return path
}

// Run runs the command to its end and returns its output.
func (i invocation) Run(t testing.TB, arguments ...string) (string, error) {
	t.Helper()
	path := i.Path(t) // may build the binary first
	ctx, cancel := context.WithTimeout(t.Context(), await.Long)
	defer cancel()
	process := exec.CommandContext(ctx, path, arguments...)
	process.Env = i.environ()
	out, err := process.CombinedOutput()
	return string(out), err
}

// IsOffered checks that the binary has the subcommand in the arguments.
func (i invocation) IsOffered(t testing.TB, name string) {
	t.Helper()
	if len(i.Arguments) == 0 {
		t.Errorf("%s: %s is started without a subcommand", name, i.Binary)
	} else if out, err := i.Run(t, append(i.Arguments, "--help")...); err != nil {
		t.Errorf("%s: %s %s: %s", name, i.Binary, strings.Join(i.Arguments, " "), out)
	}
}

// Settings returns the binary's settings with the values in force under this command's environment. It checks that they
// are valid, and that each name in the environment belongs to one, as NAME or NAME_FILE.
func (i invocation) Settings(t testing.TB, name string) map[string]string {
	t.Helper()
	out, err := i.Run(t, "check-config", "--json")
	var report struct{ Settings []envconf.Value }
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil {
		t.Errorf("%s: %s check-config: %v: %s", name, i.Binary, err, out)
		return nil
	}
	settings := map[string]string{}
	for _, s := range report.Settings {
		settings[s.Setting] = s.Value
	}
	for variable := range i.Environment {
		_, known := settings[variable]
		_, knownByFile := settings[strings.TrimSuffix(variable, "_FILE")]
		if strings.HasPrefix(variable, "ALMONER_") && !known && !knownByFile {
			t.Errorf("%s: the setting %s is unknown", name, variable)
		}
	}
	return settings
}

// With returns the command with changed settings.
func (i invocation) With(settings map[string]string) invocation {
	environment := map[string]string{}
	maps.Copy(environment, i.Environment)
	maps.Copy(environment, settings)
	i.Environment = environment
	return i
}

// WithFilesAt returns the command with the paths of files below from moved to below to.
func (i invocation) WithFilesAt(from, to string) invocation {
	moved := map[string]string{}
	for name, value := range i.Environment {
		if below, ok := strings.CutPrefix(value, from+"/"); ok && strings.HasSuffix(name, "_FILE") {
			moved[name] = filepath.Join(to, below)
		}
	}
	return i.With(moved)
}

// A startedProcess is a started command.
type startedProcess struct {
	// Addresses are the addresses that it listens on, by setting (ALMONER_LISTEN and others).
	Addresses map[string]string

	ended chan struct{}
}

// Start runs the command until the test ends. It listens on free ports of the loopback interface.
func (i invocation) Start(t testing.TB) *startedProcess {
	t.Helper()
	p := &startedProcess{Addresses: map[string]string{}, ended: make(chan struct{})}
	for name := range i.Environment {
		if strings.HasSuffix(name, "_LISTEN") {
			port, err := localstore.FreePort()
			must(t, err)
			p.Addresses[name] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	i = i.With(p.Addresses)
	process := exec.Command(i.Path(t), i.Arguments...)
	process.Env = i.environ()
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	process.Stdout, process.Stderr = &output, &output
	must(t, process.Start())
	go func() {
		_ = process.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s wrote:\n%s", i.Binary, output.String())
		}
	})
	return p
}

// Becomes waits until an address of the process answers with a status.
func (p *startedProcess) Becomes(t testing.TB, url string, status int) {
	t.Helper()
	await.NoError(t, func() error {
		select {
		case <-p.ended:
			t.Fatalf("%s: the process has ended", url)
		default:
		}
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != status {
			return fmt.Errorf("%s answers %d, not %d", url, answer.StatusCode, status)
		}
		return nil
	})
}

// newKey returns a value for ALMONER_KEYS.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(key)
}

// newStores returns a new database and Redis as values of settings, by service: owner, authserver and resourceapi, and
// with the suffix " redis" the Redis of the two services, each as the user with the rules of compose/redis-*.acl.
func newStores(t testing.TB) map[string]string {
	t.Helper()
	database, redis := testkit.NewDatabase(t), testkit.NewRedis(t).URL
	return map[string]string{
		"owner":       database.Owner,
		"authserver":  database.Authserver,
		"resourceapi": database.Resourceapi,

		"authserver redis":  redisUser(t, redis, "authserver"),
		"resourceapi redis": redisUser(t, redis, "resourceapi"),
	}
}

// redisUser makes the Redis user of a service, and returns the URL with it.
func redisUser(t testing.TB, address, service string) string {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join(repository(), "deploy/compose/redis-"+service+".acl"))
	must(t, err)
	parsed, err := url.Parse(address)
	must(t, err)
	password := newKey()
	arguments := []string{"-h", parsed.Hostname(), "-p", parsed.Port(), "ACL", "SETUSER", service, "on", ">" + password}
	arguments = append(arguments, strings.Fields(string(rules))...)
	command := exec.CommandContext(t.Context(), "redis-cli", arguments...)
	operators, _ := parsed.User.Password()
	command.Env = append(os.Environ(), "REDISCLI_AUTH="+operators)
	if out, err := command.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "OK" {
		t.Fatalf("the rules of %s: %s %v", service, out, err)
	}
	parsed.User = url.UserPassword(service, password)
	return parsed.String()
}

func (i invocation) environ() []string {
	var pairs []string
	for name, value := range i.Environment {
		pairs = append(pairs, name+"="+value)
	}
	return pairs
}
