package harness

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	// binariesVariable names a directory with binaries that were built before, as `make test` does.
	binariesVariable = "ALMONER_TEST_BINARIES"
	// toolsVariable names the directory where server programs were unpacked privately, if they are not installed.
	toolsVariable = "ALMONER_TEST_TOOLS"

	startWithin = 3 * time.Minute // building included
)

// Options are what a private stack may have otherwise.
type Options struct {
	Authservers int               // processes that take turns behind the gateway; 0 means 1
	Resources   int               // processes of resourceapi, likewise
	Worker      bool              // whether submissions are processed by a process of its own
	Settings    map[string]string // further settings of the services, ALMONER_… → value
	Durable     bool              // whether the stores write as carefully as in a real installation: for measuring
	// of the services, where they are not those of the repository as it stands (see Broken)
	Binaries string
	RedisURL string // of a Redis that runs already; "" for one of its own
	RedisDir string // where its servers' directories are
	Traced   bool   // keep the traces (Spans), and look for secrets in them at the end
	Between  *Relay // stands between the services and Postgres, if there is one
	// the directory with the programs of an earlier commit (see Earlier), which all processes but the first of each
	// service run
	Earlier string
	BaseURL string // of the API, by way of another gateway than the stack's own; "" for that one
	AppURL  string // of the pages, likewise
}

// Shared returns the stack, two real binaries behind the gateway as `make run` starts them, that all tests of this
// process use. It ends with the process. Tests leave the demo's people, applications and tokens as they are, and make
// what they change.
func Shared(t testing.TB) *stack.Stack {
	t.Helper()
	shared, err := sharedStack()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return shared
}

// Lasting starts a stack that ends with the test process.
func Lasting(options Options) (*stack.Stack, error) {
	home, err := localstore.TempDir("almoner-e2e-")
	if err != nil {
		return nil, err
	}
	lifeline, err := localstore.RemoveAfterUs(home)
	if err != nil {
		return nil, err
	}
	lifelines.Store(home, lifeline)
	s, err := start(home, options)
	if err == nil {
		lasting.Store(s, nil)
	}
	return s, err
}

// Private starts a stack for this test alone: with data, ports and servers of its own. It is stopped at the end.
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

// Cluster starts a Redis Cluster of three masters with a replica each, which is stopped when the test ends.
func Cluster(t testing.TB) *localstore.RedisCluster {
	t.Helper()
	return several(t, localstore.StartRedisCluster)
}

// Masters starts a Redis Cluster of three masters alone, likewise.
func Masters(t testing.TB) *localstore.RedisCluster {
	t.Helper()
	return several(t, localstore.StartRedisMasters)
}

// Sentinel starts a Redis with two replicas and three Sentinels, which are stopped when the test ends.
func Sentinel(t testing.TB) *localstore.RedisSentinel {
	t.Helper()
	return several(t, localstore.StartRedisSentinel)
}

func several[Servers interface{ Stop() }](
	t testing.TB,
	start func(context.Context, localstore.Options) (Servers, error),
) Servers {
	t.Helper()
	home, err := localstore.TempDir("almoner-redis-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o711); err != nil { // the servers' user passes through
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	servers, err := start(
		ctx,
		localstore.Options{Dir: filepath.Join(home, "redis"), Tools: os.Getenv(toolsVariable), Volatile: true},
	)
	if err != nil {
		t.Fatalf("start several Redis: %v", err)
	}
	t.Cleanup(servers.Stop)
	return servers
}

// builds is a directory with the services' binaries.
type builds struct {
	dir      string
	lifeline io.Closer
}

// The state of the test process: one build and one stack for all its tests.
var (
	lifelines   sync.Map // home → io.Closer: kept, so that they are not collected
	sharedStack = sync.OnceValues(func() (*stack.Stack, error) { return Lasting(Options{Traced: true}) })
	sharedBuild = sync.OnceValues(func() (builds, error) {
		if dir := os.Getenv(binariesVariable); dir != "" {
			return builds{dir: dir}, nil
		}
		root, err := repositoryRoot()
		if err != nil {
			return builds{}, err
		}
		dir, err := os.MkdirTemp("", "almoner-e2e-bin-")
		if err != nil {
			return builds{}, err
		}
		lifeline, err := localstore.RemoveAfterUs(dir)
		if err != nil {
			return builds{}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		return builds{dir, lifeline}, stack.Build(ctx, root, dir)
	})
)

// Program is the path of one of the services' binaries, which has commands besides serving.
func Program(t testing.TB, name string) string {
	t.Helper()
	built, err := sharedBuild()
	if err != nil {
		t.Fatalf("build the services: %v", err)
	}
	return filepath.Join(built.dir, name)
}

func start(home string, options Options) (*stack.Stack, error) {
	if (options.RedisURL == "") != (options.RedisDir == "") {
		return nil, errors.New(
			"where the files of a Redis are, which are searched for secrets, must be said with its URL",
		)
	}
	binaries := options.Binaries
	if binaries == "" {
		built, err := sharedBuild()
		if err != nil {
			return nil, err
		}
		binaries = built.dir
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	var detour func(string) string
	if options.Between != nil {
		detour = options.Between.Detour
	}
	traces := ""
	if options.Traced {
		taking, err := collect(home)
		if err != nil {
			return nil, err
		}
		traces = taking.URL
	}
	s, err := stack.Start(ctx, stack.Options{
		Home:        home,
		Binaries:    binaries,
		Tools:       os.Getenv(toolsVariable),
		Volatile:    !options.Durable,
		Authservers: options.Authservers,
		Resources:   options.Resources,
		Worker:      options.Worker,
		Settings:    options.Settings,
		Detour:      detour,
		RedisURL:    options.RedisURL,
		BaseURL:     options.BaseURL,
		AppURL:      options.AppURL,
		Earlier:     options.Earlier,
		Observed:    true,
		Collector:   traces,
	})
	if err == nil {
		recordOf(s).options = options
	}
	return s, err
}

// repositoryRoot is the directory above us that holds go.work: tests run in their package's directory.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
}
