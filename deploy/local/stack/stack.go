// Package stack runs all parts of Almoner together on one machine.
//
// Start starts stores, schema, demo data, services and the gateway, in this order, and stops everything if one of them
// fails. `make run` is a thin wrapper around it, and the end-to-end tests use it too.
package stack

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server"
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
	post    *post             // nil unless Options.Mailbox
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
	var err error
	if s.DatabaseURL, s.RedisURL, err = s.startStores(ctx); err != nil {
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
		var err error
		if s.post, err = openMailbox(s.ports.mailbox); err != nil {
			return err
		}
		s.Demo.Mailbox = &demo.Mailbox{URL: s.post.url}
	}
	s.options.say("starting the services")
	if err := s.startServices(ctx); err != nil {
		return err
	}
	var traces server.TraceSettings
	if _, err := envconf.Load(&traces, pairs(s.traceSettings())); err != nil {
		return err
	}
	var err error
	if s.edge, err = openEdge(s.ports.api, s.backends(), traces, s.home.logFile("gateway")); err != nil {
		return err
	}
	for _, address := range []string{localhost(s.ports.api), localhost(s.ports.app)} {
		if !ask(ctx, address).ready {
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

// prepareDatabase claims the database, migrates its schema and writes the demo data.
func (s *Stack) prepareDatabase(ctx context.Context) error {
	owner, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return s.explainDatabase(withoutURL(err))
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	if err := checkRights(ctx, owner); err != nil {
		return err
	}
	if err := demo.Claim(ctx, owner, s.home.seed); err != nil {
		return err
	}
	for _, service := range Services() {
		if err := s.migrate(ctx, service, s.options.Binaries); err != nil {
			return err
		}
		if s.logins[service], err = s.loginFor(ctx, owner, s.DatabaseURL, service); err != nil {
			return err
		}
	}
	if s.Demo, err = demo.Describe(s.home.seed, s.BaseURL, s.AppURL); err != nil {
		return err
	}
	return demo.Insert(ctx, owner, s.home.seed, &s.Demo, time.Now())
}

// Migrate migrates the schema with the programs of a directory of binaries, while the services run.
func (s *Stack) Migrate(ctx context.Context, binaries string) error {
	for _, service := range Services() {
		if err := s.migrate(ctx, service, binaries); err != nil {
			return err
		}
	}
	return nil
}

// FinishUpgrade finishes the upgrade, with the program of a directory of binaries, while the services run.
func (s *Stack) FinishUpgrade(ctx context.Context, binaries string) error {
	return s.migrate(ctx, authserver, binaries, "--finish")
}

func (s *Stack) migrate(ctx context.Context, service, binaries string, flags ...string) error {
	spec := s.spec(service, service, append([]string{"migrate"}, flags...)...)
	spec.Path = filepath.Join(binaries, service)
	spec.Env = pairs(s.environment(map[string]string{"ALMONER_DATABASE_URL": s.DatabaseURL}))
	if err := child.Run(ctx, spec); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

// explainDatabase returns an error that names the setting of an unusable database and says what to do.
func (s *Stack) explainDatabase(cause error) error {
	if s.options.DatabaseURL == "" {
		return fmt.Errorf("the database is not reachable: %w", cause)
	}
	where := ""
	if config, err := pgx.ParseConfig(s.options.DatabaseURL); err == nil {
		where = " at " + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	}
	first, _, _ := strings.Cut(cause.Error(), "\n") // pgx repeats it for each way to connect
	return fmt.Errorf("cannot connect to the database of ALMONER_DATABASE_URL%s (%s): start it, correct the URL, or "+
		"unset ALMONER_DATABASE_URL, so that make run starts its own PostgreSQL", where, first)
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
			return fmt.Errorf("%s (its log is %s)", process.Outcome(), service.spec.Log)
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
		if s.post != nil {
			group.Go(s.post.close)
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

func openLog(path string) (*slog.Logger, *os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return web.NewLogger(file, slog.LevelInfo), file, nil
}

// Options configure a Stack.
type Options struct {
	Home     string // the data directory (.almoner); one Stack at a time uses it
	Binaries string // the directory with authserver and resourceapi (see Build)
	Tools    string // directory of the privately unpacked programs of package apt; "" if they are installed

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
	// first of each service run; "" means Binaries.
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
