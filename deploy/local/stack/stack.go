// Package stack runs all parts of Almoner together on one machine.
//
// Start starts stores, schema, demo data, services and the gateway, in this order, and stops everything if one of them
// fails. `make run` is a thin wrapper around it, and the end-to-end tests use it too.
package stack

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/net/version"
)

// A Stack is a running Almoner.
type Stack struct {
	BaseURL     string // the API, through the gateway
	AppURL      string // login, consent, settings
	ResourceURL string // resourceapi, without the gateway
	Demo        demo.Demo

	DatabaseURL string // as the database's owner
	RedisURL    string
	Postgres    *localstore.Postgres // nil if Options.DatabaseURL is set
	Redis       *localstore.Redis    // nil if Options.RedisURL is set
	Authservers []*Service           // the first one serves AppURL
	Resourceapi *Service             // the first one, at ResourceURL
	Resources   []*Service           // all processes of resourceapi
	Worker      *Service             // nil unless Options.Worker

	options Options
	home    *home
	ports   ports
	edge    *edge
	mailbox *mailbox.Mailbox  // nil unless Options.Mailbox
	mails   *http.Server      // the page of the mailbox
	logins  map[string]string // service → database URL
	stop    sync.Once
}

// Start starts everything and returns when everything is ready. If it fails, it stops whatever it started.
func Start(ctx context.Context, options Options) (*Stack, error) {
	s, err := open(options)
	if err != nil {
		return nil, err
	}
	if err := s.bringUp(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Prepare creates the stores' data in options.Home, with the schema and the demo, as a first start does before it
// starts the services. A stack with a copy of this home starts faster.
func Prepare(ctx context.Context, options Options) error {
	s, err := open(options)
	if err != nil {
		return err
	}
	defer s.Stop()
	return s.prepareStores(ctx)
}

func open(options Options) (*Stack, error) {
	s := &Stack{options: options, logins: map[string]string{}}
	var err error
	if s.home, err = openHome(options.Home); err != nil {
		return nil, err
	}
	if s.ports, err = choosePorts(options.Port); err != nil {
		s.Stop()
		return nil, err
	}
	s.BaseURL = cmp.Or(options.BaseURL, localhost(s.ports.api))
	s.AppURL = cmp.Or(options.AppURL, localhost(s.ports.app))
	s.ResourceURL = localhost(s.ports.resource)
	return s, nil
}

func localhost(port int) string { return "http://localhost:" + strconv.Itoa(port) }

func (s *Stack) prepareStores(ctx context.Context) error {
	if err := s.startStores(ctx); err != nil {
		return err
	}
	s.options.say("preparing the database")
	return s.prepareDatabase(ctx)
}

func (s *Stack) bringUp(ctx context.Context) error {
	if err := s.prepareStores(ctx); err != nil {
		return err
	}
	if s.options.Mailbox {
		if err := s.openMailbox(); err != nil {
			return err
		}
	}
	s.options.say("starting the services")
	if err := s.startServices(ctx); err != nil {
		return err
	}
	var err error
	if s.edge, err = s.openEdge(); err != nil {
		return err
	}
	for _, address := range []string{localhost(s.ports.api), localhost(s.ports.app)} {
		if ready, _ := ask(ctx, address); !ready {
			return fmt.Errorf(
				"%s is not reachable, although the services are ready: check that localhost is 127.0.0.1 in /etc/hosts",
				address)
		}
	}
	if err := s.writeSettingsFiles(); err != nil {
		return err
	}
	return s.Demo.WriteFile(s.home.path("demo.json"))
}

// Migrate runs the command migrate of a service's program in a directory of binaries, also while the services run.
func (s *Stack) Migrate(ctx context.Context, service, binaries string, flags ...string) error {
	spec := s.spec(service, service, append([]string{"migrate"}, flags...)...)
	spec.Path = filepath.Join(binaries, service)
	spec.Env = pairs(s.environment(map[string]string{"ALMONER_DATABASE_URL": s.DatabaseURL}))
	if err := child.Run(ctx, spec); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

// Wait returns nil when ctx ends, and an error when a service or the gateway ends by itself. It starts a private store
// that ends by itself again.
func (s *Stack) Wait(ctx context.Context) error {
	ended := make(chan error, len(s.services())+3)
	healing, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	defer kept.Wait() // otherwise a store could start after Stop
	defer stop()
	watch := func(done <-chan struct{}, why func() error) {
		go func() {
			select {
			case <-done:
				ended <- why()
			case <-ctx.Done():
			}
		}()
	}
	for _, service := range s.services() {
		process := service.Current()
		watch(process.Done(), func() error {
			return fmt.Errorf("%s (its log is %s)", process.Outcome(), service.Spec.Log)
		})
	}
	keep := func(name string, server store) {
		kept.Go(func() {
			if err := s.keep(healing, name, server); err != nil {
				ended <- err
			}
		})
	}
	if s.Postgres != nil {
		keep("PostgreSQL", s.Postgres)
	}
	if s.Redis != nil {
		keep("Redis", s.Redis)
	}
	watch(s.edge.done, func() error { return s.edge.err })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// LogDir returns the directory of the services' logs.
func (s *Stack) LogDir() string { return s.home.path("log") }

// StoreDir returns the data directory of PostgreSQL and Redis.
func (s *Stack) StoreDir() string { return s.home.stores }

// Stop stops everything that Start started, the gateway first and the stores last, and waits for the end.
func (s *Stack) Stop() {
	s.stop.Do(func() {
		if s.edge != nil {
			s.edge.close()
		}
		var group sync.WaitGroup
		for _, service := range s.services() {
			group.Go(service.Stop)
		}
		group.Wait()
		if s.mails != nil {
			_ = s.mails.Close()
		}
		if s.mailbox != nil {
			group.Go(s.mailbox.Close)
		}
		if s.Redis != nil {
			group.Go(s.Redis.Stop)
		}
		if s.Postgres != nil {
			group.Go(s.Postgres.Stop)
		}
		group.Wait()
		s.home.release()
	})
}

// Options configure a Stack.
type Options struct {
	Home     string // the data directory (.almoner); one Stack at a time uses it
	Binaries string // the directory with authserver and resourceapi (see Build)
	Tools    string // directory of privately unpacked programs; "" if they are installed

	// Port is the port of the API. The next one is login and settings, the one after that is resourceapi. 0 means any
	// three.
	Port int

	// DatabaseURL and RedisURL name servers to use instead of private ones. The database must be empty or hold this
	// demo, and its user must be allowed to create roles.
	DatabaseURL string
	RedisURL    string

	// BaseURL and AppURL, for tests, are the addresses of the API and the pages at a gateway that the test starts; ""
	// means at Port.
	BaseURL string
	AppURL  string

	Authservers int               // processes that alternate behind the gateway; 0 means 1
	Resources   int               // processes of resourceapi, in the same way
	Worker      bool              // a separate process (Stack.Worker) processes submissions
	Settings    map[string]string // further settings of the services, ALMONER_… → value
	// EarlierBinaries, for tests, is the directory of the programs of an earlier commit, which all processes except the
	// first of each service run, on a schema that was upgraded from that commit's; "" means Binaries.
	EarlierBinaries string
	Mailbox         bool // authserver sends its mail to a mailbox of this stack
	// LocalReceivers delivers webhooks to receivers on this machine that use the certificate localhost.crt in Home,
	// with the key localhost.key.
	LocalReceivers bool
	Observed       bool // the services serve metrics (Service.Metrics)
	// Collector is where services and gateway send their traces (OTLP over HTTP); "" means as the environment says.
	Collector string
	Volatile  bool // for tests: the stores do not survive a power cut
	// PostgresProxy, for tests, gets the address of Postgres and returns the address to which the services connect
	// instead; nil means no proxy.
	PostgresProxy func(address string) string
	Progress      func(string) // gets progress messages; may be nil
}

func (o Options) say(line string) {
	if o.Progress != nil {
		o.Progress(line)
	}
}

// These are the services in the order of their migrations: authserver's create the roles that resourceapi's need.
const (
	authserver  = "authserver"
	resourceapi = "resourceapi"
)

// Flags returns the build flags of everything that is run or shipped (deploy/image/Dockerfile), for Go without C.
func Flags() []string { return []string{"-trimpath", "-tags=" + version.BuildTags} }

// Services returns the names of both services.
func Services() []string { return []string{authserver, resourceapi} }

// Build compiles services of the repository at root into a directory, with Flags and further flags. An error contains
// the compiler's output.
func Build(ctx context.Context, root, into string, services []string, flags ...string) error {
	for _, service := range services {
		flags = append(flags, "./"+service+"/cmd/"+service)
	}
	return build(ctx, root, into, os.Environ(), flags...)
}

// BuildModule is Build for one service without the workspace, as its image is built. In the workspace, Go downloads the
// go.mod files of 700 more modules at the first build.
func BuildModule(ctx context.Context, root, into, service string) error {
	return build(ctx, filepath.Join(root, service), into, append(os.Environ(), "GOWORK=off"), "./cmd/"+service)
}

func build(ctx context.Context, dir, into string, environ []string, arguments ...string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	arguments = slices.Concat([]string{"build", "-o", into + string(filepath.Separator)}, Flags(), arguments)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = dir
	command.Env = append(environ, "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		output := strings.TrimSpace(string(out))
		if output == "" {
			output = "go printed nothing"
		}
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}

// Check returns an error that would prevent Start and can be detected without starting anything: another stack in the
// same directory, a directory that is not writable, a port in use, or a given store that does not respond.
func Check(ctx context.Context, options Options) error {
	s, err := open(options)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.askRedis(ctx); err != nil || options.DatabaseURL == "" {
		return err
	}
	s.DatabaseURL = options.DatabaseURL
	ctx, cancel := context.WithTimeout(ctx, givenWithin)
	defer cancel()
	owner, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return owner.Close(ctx)
}
