package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	// binariesVariable names a directory with binaries that are already built, as `make test` provides.
	binariesVariable = "ALMONER_TEST_BINARIES"
	// toolsVariable names the directory of server programs that are not installed in the system.
	toolsVariable = "ALMONER_TEST_TOOLS"
	// homeVariable names a home that stack.Prepare made, as `make test` provides.
	homeVariable = "ALMONER_TEST_HOME"
	// storeWait is the setting for how long the services wait for a store that does not respond.
	storeWait = "ALMONER_STORE_WAIT"

	startWithin = 20 * time.Minute // includes the build, which a slow machine does beside other tests
)

// Options are the options of a private stack.
type Options struct {
	Authservers int               // processes behind the gateway; 0 means 1
	Resources   int               // processes of resourceapi; 0 means 1
	Worker      bool              // process submissions in a separate process
	Settings    map[string]string // additional settings of the services, ALMONER_… → value
	Durable     bool              // stores write durably, as in production: for measurements
	Fresh       bool              // Binaries migrate the schema, which they may not know if it is newer
	StopsStores bool              // requests wait for testkit.SilentStoreWait, because the test stops a store
	// Binaries is the directory of the services' binaries if they are not built from the repository (see Broken).
	Binaries string
	RedisURL string // URL of a running Redis; "" to start one
	RedisDir string // contains the directories of its servers
	Mailbox  bool   // the deployment sends mail, to Stack.Mailbox
	Traced   bool   // store the traces (Spans) and search them for secrets at the end
	// Between starts a proxy between the services and the server, and returns its address; nil for none.
	Between func(server string) string
	// EarlierBinaries is the directory with the programs of an earlier commit (see Earlier). All processes except the
	// first of each service run them.
	EarlierBinaries string
	BaseURL         string // of the API through another gateway; "" for the stack's own
	AppURL          string // of the pages through another gateway; "" for the stack's own
}

// Lasting starts a stack that runs until the test process ends.
func Lasting(options Options) (*stack.Stack, error) {
	home, err := localstore.ProcessDir("almoner-e2e-")
	if err != nil {
		return nil, err
	}
	return start(home, options)
}

// Private starts a stack for this test only, with its own data, ports and servers. It is stopped when the test ends.
func Private(t testing.TB, options Options) *stack.Stack {
	t.Helper()
	home, err := localstore.TempDir("almoner-e2e-")
	if err != nil {
		t.Fatalf("start a stack: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	s, err := start(home, options)
	if err != nil {
		t.Fatalf("start a stack: %v", err)
	}
	t.Cleanup(s.Stop)
	t.Cleanup(func() {
		for _, complaint := range sweep(s, false) { // its stores may have been stopped
			t.Error(complaint)
		}
		records.Delete(s)
	})
	return s
}

// Servers starts servers with a function of localstore, such as localstore.StartRedisCluster. They are stopped when the
// test ends.
func Servers[S interface{ Stop() }](t testing.TB, start func(context.Context, localstore.Options) (S, error)) S {
	t.Helper()
	home, err := localstore.TempDir("almoner-redis-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	must(t, os.Chmod(home, 0o711)) // the servers' user must be able to enter it
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	servers, err := start(ctx,
		localstore.Options{Dir: filepath.Join(home, "redis"), Tools: os.Getenv(toolsVariable), Volatile: true})
	if err != nil {
		t.Fatalf("start Redis: %v", err)
	}
	t.Cleanup(servers.Stop)
	return servers
}

// The state of the test process: one build and one prepared home for all tests.
var (
	preparedHome = sync.OnceValues(prepareHome)
	// sharedBuild returns the directory of the services' binaries.
	sharedBuild = sync.OnceValues(func() (string, error) {
		if dir := os.Getenv(binariesVariable); dir != "" {
			return dir, nil
		}
		root, err := localstore.RepositoryRoot()
		if err != nil {
			return "", err
		}
		dir, err := localstore.ProcessDir("almoner-e2e-bin-")
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		return dir, stack.Build(ctx, root, dir, stack.Services())
	})
)

// Program returns the path of a service's binary, for commands other than serving.
func Program(t testing.TB, name string) string {
	t.Helper()
	built, err := sharedBuild()
	if err != nil {
		t.Fatalf("build the services: %v", err)
	}
	return filepath.Join(built, name)
}

func start(home string, options Options) (*stack.Stack, error) {
	if (options.RedisURL == "") != (options.RedisDir == "") {
		return nil, errors.New("RedisURL needs RedisDir, whose files are searched for secrets")
	}
	binaries := options.Binaries
	if binaries == "" {
		built, err := sharedBuild()
		if err != nil {
			return nil, err
		}
		binaries = built
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	if !options.Durable && !options.Fresh && os.Getenv(citusVariable) == "" {
		if err := copyPreparedHome(ctx, home); err != nil {
			return nil, err
		}
	}
	traces := ""
	if options.Traced {
		taking, err := collect(home)
		if err != nil {
			return nil, err
		}
		traces = taking.URL
	}
	database, err := distributedDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s, err := stack.Start(ctx, stack.Options{
		DatabaseURL:     database,
		Home:            home,
		Binaries:        binaries,
		Tools:           os.Getenv(toolsVariable),
		Volatile:        !options.Durable,
		Authservers:     options.Authservers,
		Resources:       options.Resources,
		Worker:          options.Worker,
		Settings:        withStoreWait(options),
		PostgresProxy:   options.Between,
		RedisURL:        options.RedisURL,
		BaseURL:         options.BaseURL,
		AppURL:          options.AppURL,
		EarlierBinaries: options.EarlierBinaries,
		Mailbox:         options.Mailbox,
		Observed:        true,
		Collector:       traces,
	})
	if err == nil && database != "" {
		err = distribute(ctx, binaries, database)
	}
	if err != nil {
		return nil, err
	}
	recordOf(s).options = options
	return s, nil
}

// withStoreWait returns the settings of a stack. A busy machine is not an outage, so the services wait as long for
// their stores as they can be made to, unless the test sets the time, or is a measurement or a long form.
func withStoreWait(options Options) map[string]string {
	if options.Durable || Long() {
		return options.Settings
	}
	wait := testkit.StoreWait
	if options.StopsStores || options.EarlierBinaries != "" {
		wait = testkit.SilentStoreWait
	}
	settings := map[string]string{storeWait: wait.String()}
	maps.Copy(settings, options.Settings)
	return settings
}

// AsInProduction returns the settings of a stack that waits for its stores as in production, less than 300 ms, for
// tests that check the time of responses or stop a store for less than a second.
func AsInProduction() map[string]string { return map[string]string{storeWait: "0s"} }

func copyPreparedHome(ctx context.Context, home string) error {
	prepared, err := preparedHome()
	if err != nil {
		return err
	}
	// A copy keeps the owner of the stores' data.
	if out, err := exec.CommandContext(ctx, "cp", "-a", prepared+"/.", home).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the prepared home: %w: %s", err, out)
	}
	return nil
}

// prepareHome returns a home from which stacks of tests are copied: the schema and the demo are stored once.
func prepareHome() (string, error) {
	if home := os.Getenv(homeVariable); home != "" {
		return home, nil
	}
	built, err := sharedBuild()
	if err != nil {
		return "", err
	}
	home, err := localstore.ProcessDir("almoner-e2e-home-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return home, stack.Prepare(ctx, stack.Options{
		Home:     home,
		Binaries: built,
		Tools:    os.Getenv(toolsVariable),
		Volatile: true,
	})
}

// A Fault is a change to the product's source that removes a protection or adds a point of failure. It exists in one
// build of one test: the compiler reads a changed copy of the file (go build -overlay). No release contains it.
type Fault struct {
	File string // path within the repository
	Old  string // occurs exactly once
	New  string
}

// Faulty returns the files that the faults change, by path, with the faults applied. A fault that does not match the
// source fails the test.
func Faulty(t testing.TB, faults ...Fault) map[string]string {
	t.Helper()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	texts := map[string]string{}
	for _, fault := range faults {
		path := filepath.Join(root, fault.File)
		if _, known := texts[path]; !known {
			content, err := os.ReadFile(path)
			must(t, err)
			texts[path] = string(content)
		}
		if count := strings.Count(texts[path], fault.Old); count != 1 {
			t.Errorf("%s contains this %d times, want 1; update the fault:\n%s", fault.File, count, fault.Old)
		}
		texts[path] = strings.Replace(texts[path], fault.Old, fault.New, 1)
	}
	if t.Failed() {
		t.FailNow()
	}
	return texts
}

// Broken builds the services with faults and returns the directory of their binaries.
func Broken(t testing.TB, faults ...Fault) string {
	t.Helper()
	texts := Faulty(t, faults...)
	root, err := localstore.RepositoryRoot()
	must(t, err)
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Ext(path))
		must(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	binaries := filepath.Join(dir, "bin")
	changed, same := changedServices(faults)
	// Without debugging information the linker takes half the time.
	must(t, stack.Build(ctx, root, binaries, changed, "-overlay="+file, "-ldflags=-w"))
	for _, service := range same {
		must(t, os.Symlink(Program(t, service), filepath.Join(binaries, service)))
	}
	return binaries
}

// changedServices returns the services that faults may change, and those that they do not.
func changedServices(faults []Fault) (changed, same []string) {
	for _, service := range stack.Services() {
		concerns := func(f Fault) bool {
			module, _, _ := strings.Cut(f.File, "/")
			return module == service || !slices.Contains(stack.Services(), module)
		}
		if slices.ContainsFunc(faults, concerns) {
			changed = append(changed, service)
		} else {
			same = append(same, service)
		}
	}
	return changed, same
}

// RunAgainst runs tests of this test binary against other binaries of the services, with scaled rounds (Rounds). It
// returns their output and whether they passed. Settings have the form NAME=value.
func RunAgainst(t testing.TB, binaries, tests string, scale int, settings ...string) (output string, passed bool) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	arguments := []string{"-test.run=" + tests, "-test.timeout=40m", "-scale=" + strconv.Itoa(scale)}
	command := exec.CommandContext(t.Context(), self, arguments...)
	home, err := preparedHome()
	must(t, err)
	command.Env = append(append(os.Environ(), binariesVariable+"="+binaries, homeVariable+"="+home), settings...)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// previousRelease is the commit of the last release that was installed. Its schema is older than the newest migrations.
const previousRelease = "0cfcdfceca13daaa21b244cb62d9e932ccd72816"

// PreviousRelease returns the commit from which installations are upgraded: the one that ALMONER_UPGRADE_FROM names, or
// the last release that was installed.
func PreviousRelease() string { return cmp.Or(os.Getenv("ALMONER_UPGRADE_FROM"), previousRelease) }

// Earlier builds both services at a commit and returns the directory of their binaries. The test is skipped if the
// commit or one of its dependencies is not available: in a copy without history, or without a network.
func Earlier(t testing.TB, commit string) string {
	t.Helper()
	source, binaries := CommittedFolder(t, commit, "."), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	// Without debugging information the linker takes half the time.
	built := stack.Build(ctx, source, binaries, stack.Services(), "-ldflags=-w")
	if built != nil && ctx.Err() == nil { // a build that took too long is no reason to skip
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./authserver/cmd/authserver",
			"./resourceapi/cmd/resourceapi")
		list.Dir, list.Env = source, append(os.Environ(), "GOTOOLCHAIN=local", "GOFLAGS=")
		if out, err := list.CombinedOutput(); err != nil {
			t.Skipf("the dependencies of commit %.10s are not available: %.300s", commit, out)
		}
	}
	must(t, built)
	return binaries
}

// CommittedFolder writes a folder of the repository at a commit to a directory, which it returns. The test is skipped
// if the commit is not available.
func CommittedFolder(t testing.TB, commit, folder string) string {
	t.Helper()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	known := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}")
	if out, err := known.CombinedOutput(); err != nil {
		t.Skipf("the commit %.10s is not in this copy: %s", commit, out)
	}
	dir := t.TempDir()
	archive := filepath.Join(t.TempDir(), "folder.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, commit, folder},
		{"tar", "-x", "-C", dir, "-f", archive},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command[0], err, out)
		}
	}
	return filepath.Join(dir, folder)
}
