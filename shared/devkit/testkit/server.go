package testkit

import (
	"context"
	"os"
	"sync"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	// serverVariable names a superuser URL of a server for all test processes.
	serverVariable = "ALMONER_TEST_POSTGRES_URL"
	// toolsVariable names the directory of privately unpacked server programs.
	toolsVariable = "ALMONER_TEST_TOOLS"
)

// server is the PostgreSQL server of the test process.
type server struct {
	url string
}

// sharedServer and sharedTemplate are the state of the test process: one server and one template for all its
// tests.
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

// preparedTemplates are the templates of NewPreparedDatabase.
var preparedTemplates = struct {
	sync.Mutex
	byName map[string]template
}{byName: map[string]template{}}

func preparedTemplate(ctx context.Context, base template, name string, prepare Preparation) (template, error) {
	preparedTemplates.Lock()
	defer preparedTemplates.Unlock()
	if known, made := preparedTemplates.byName[name]; made {
		return known, nil
	}
	prepared, err := base.prepared(ctx, name, prepare)
	if err == nil {
		preparedTemplates.byName[name] = prepared
	}
	return prepared, err
}

func findServer() (server, error) {
	if url := os.Getenv(serverVariable); url != "" {
		return server{url: url}, nil
	}
	dir, err := localstore.ProcessDir("almoner-test-postgres-")
	if err != nil {
		return server{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	started, err := localstore.StartPostgres(ctx,
		localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true})
	if err != nil {
		return server{}, err
	}
	return server{url: started.URL}, nil
}
