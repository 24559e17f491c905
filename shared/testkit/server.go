package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/almonerhq/almoner/shared/localstore"
)

const (
	// serverVariable names a server for all test processes, as a superuser's URL.
	serverVariable = "ALMONER_TEST_POSTGRES_URL"
	// toolsVariable names the directory where server programs were unpacked privately, if they are not installed.
	toolsVariable = "ALMONER_TEST_TOOLS"
)

// server is the PostgreSQL server of the test process.
type server struct {
	url string
	// lifeline is a pipe that the kernel closes when this process is gone; kept here so that nothing closes it before.
	lifeline *os.File
}

// sharedServer and sharedTemplate are the state of the test process: one server and one template for all its tests.
var (
	sharedServer   = sync.OnceValues(findServer)
	sharedTemplate = sync.OnceValues(func() (template, error) {
		s, err := sharedServer()
		if err != nil {
			return template{}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
		defer cancel()
		return ensureTemplate(ctx, s.url)
	})
)

func findServer() (server, error) {
	if url := os.Getenv(serverVariable); url != "" {
		return server{url: url}, nil
	}
	dir, err := localstore.TempDir("almoner-test-postgres-")
	if err != nil {
		return server{}, err
	}
	lifeline, err := removeAfterUs(dir)
	if err != nil {
		return server{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	started, err := localstore.StartPostgres(ctx, localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true})
	if err != nil {
		return server{}, err
	}
	return server{url: started.URL, lifeline: lifeline}, nil
}

// removeAfterUs removes dir when this process is gone, however it ended. A test process has no moment of its own
// for that: the server ends with us by itself (package child), and a shell notices that the lifeline was closed.
func removeAfterUs(dir string) (*os.File, error) {
	reader, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	watcher := exec.Command("/bin/sh", "-c",
		`cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$0" 2>/dev/null && exit; sleep 0.3; done`, dir)
	watcher.Stdin = reader
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not end it before us
	if err := watcher.Start(); err != nil {
		return nil, fmt.Errorf("watch over %s: %w", dir, err)
	}
	return lifeline, nil
}
