package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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

// Shared returns the stack that all tests of this process share: two real binaries behind the gateway, as `make run`
// starts them. It runs until the process ends. Tests do not modify the demo's users, applications and tokens; they
// create what they modify.
func Shared(t testing.TB) *stack.Stack {
	t.Helper()
	shared, err := sharedStack()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return shared
}

// Lasting starts a stack that runs until the test process ends.
func Lasting(options Options) (*stack.Stack, error) {
	home, err := localstore.ProcessDir("almoner-e2e-")
	if err != nil {
		return nil, err
	}
	s, err := start(home, options)
	if err == nil {
		lasting.Store(s, nil)
	}
	return s, err
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
	t.Cleanup(func() { sweepAtTheEnd(t, s) })
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

// The state of the test process: one build and one stack for all tests.
var (
	sharedStack  = sync.OnceValues(func() (*stack.Stack, error) { return Lasting(Options{Traced: true}) })
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
