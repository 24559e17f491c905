package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/envconf"
	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"
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
	logins  map[string]string // service → database URL
	stop    sync.Once
}

// Start starts everything and returns when everything is ready. If it fails, it stops whatever it started.
func Start(ctx context.Context, options Options) (*Stack, error) {
	s := &Stack{options: options, logins: map[string]string{}}
	var err error
	if s.home, err = openHome(options.Home); err != nil {
		return nil, err
	}
	if s.ports, err = choosePorts(options.Port); err == nil {
		err = s.bringUp(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Stack) bringUp(ctx context.Context) error {
	ownBase, ownApp := "http://localhost:"+strconv.Itoa(s.ports.api), "http://localhost:"+strconv.Itoa(s.ports.app)
	s.BaseURL, s.AppURL = cmp.Or(s.options.BaseURL, ownBase), cmp.Or(s.options.AppURL, ownApp)
	s.ResourceURL = "http://localhost:" + strconv.Itoa(s.ports.resource)
	var err error
	if s.DatabaseURL, s.RedisURL, err = s.startStores(ctx); err != nil {
		return err
	}
	s.options.say("preparing the database")
	if err := s.prepareDatabase(ctx); err != nil {
		return err
	}
	s.options.say("starting the services")
	if err := s.startServices(ctx); err != nil {
		return err
	}
	var traces tracing.Settings
	if _, err := envconf.Load(&traces, pairs(s.traceSettings())); err != nil {
		return err
	}
	if s.edge, err = openEdge(s.ports.api, s.backends(), traces, s.home.logFile("gateway")); err != nil {
		return err
	}
	for _, address := range []string{ownBase, ownApp} {
		if !ask(ctx, address).ready {
			return fmt.Errorf(
				"%s does not answer although the services do: does localhost stand for 127.0.0.1 here (/etc/hosts)?",
				address,
			)
		}
	}
	if err := s.writeAdminFile(); err != nil {
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
	for _, service := range []string{authserver, resourceapi} {
		if err := child.Run(ctx, s.spec(service, "migrate", map[string]string{
			"ALMONER_DATABASE_URL": s.DatabaseURL,
		})); err != nil {
			return fmt.Errorf("bring the schema up to date: %w", err)
		}
		if s.logins[service], err = s.loginFor(ctx, owner, s.DatabaseURL, service); err != nil {
			return err
		}
	}
	if s.Demo, err = demo.Describe(s.home.seed, s.BaseURL, s.AppURL); err != nil {
		return err
	}
	return demo.Plant(ctx, owner, s.home.seed, &s.Demo, time.Now())
}

// explainDatabase returns an error that names the setting of an unusable database and says what to do.
func (s *Stack) explainDatabase(cause error) error {
	if s.options.DatabaseURL == "" {
		return fmt.Errorf("the database does not answer: %w", cause)
	}
	where := ""
	if config, err := pgx.ParseConfig(s.options.DatabaseURL); err == nil {
		where = ", at " + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + ","
	}
	return fmt.Errorf(
		"the database of ALMONER_DATABASE_URL%s does not let us in (%w): start it, correct the URL, or unset "+
			"ALMONER_DATABASE_URL: then make run starts a PostgreSQL of its own",
		where,
		cause,
	)
}

// database returns a service's Postgres URL, changed by Options.Detour.
func (s *Stack) database(service string) (string, error) {
	if s.options.Detour == nil {
		return s.logins[service], nil
	}
	address, err := url.Parse(s.logins[service])
	if err != nil {
		return "", errors.New("the URL of the database cannot be read")
	}
	address.Host = s.options.Detour(address.Host)
	return address.String(), nil
}

func (s *Stack) startServices(ctx context.Context) error {
	databases := map[string]string{}
	for _, service := range []string{authserver, resourceapi} {
		var err error
		if databases[service], err = s.database(service); err != nil {
			return err
		}
	}
	err := s.startEach(ctx, authserver, s.ports.app, s.options.Authservers, &s.Authservers, map[string]string{
		"ALMONER_APP_URL": s.AppURL, "ALMONER_DATABASE_URL": databases[authserver],
		"ALMONER_REDIS_URL": s.RedisURL, "ALMONER_KEYS": s.home.seed.Key(authserver),
		"ALMONER_TRUSTED_PROXIES": gateway.SourceAddress,
	})
	if err != nil {
		return err
	}
	settings := map[string]string{
		"ALMONER_APP_URL": s.AppURL, "ALMONER_DATABASE_URL": databases[resourceapi],
		"ALMONER_REDIS_URL": s.RedisURL, "ALMONER_KEYS": s.home.seed.Key(resourceapi),
		"ALMONER_TRUSTED_PROXIES": gateway.SourceAddress,
		// Directly from authserver, because the gateway starts after the services.
		"ALMONER_JWKS_URL": s.Authservers[0].URL + "/v1/account/oauth/jwks",
		"ALMONER_WORKER":   strconv.FormatBool(!s.options.Worker),
	}
	err = s.startEach(ctx, resourceapi, s.ports.resource, s.options.Resources, &s.Resources, settings)
	if err != nil || !s.options.Worker {
		return err
	}
	return s.startWorker(ctx, settings)
}

func (s *Stack) startWorker(ctx context.Context, settings map[string]string) error {
	port, err := localstore.FreePort()
	if err != nil {
		return err
	}
	settings["ALMONER_WORKER_LISTEN"] = loopback(port)
	spec := s.spec(resourceapi, "worker", settings)
	spec.Name, spec.Log = "worker", s.home.logFile("worker")
	worker, err := s.observed(&Service{Name: spec.Name, URL: "http://" + loopback(port), spec: spec})
	if err != nil {
		return err
	}
	s.Worker = worker
	return worker.start(ctx)
}

// startEach starts the processes of a service, the first at the port. It appends each process to into, even if it does
// not start.
func (s *Stack) startEach(
	ctx context.Context,
	name string,
	port, count int,
	into *[]*Service,
	settings map[string]string,
) error {
	addresses := []string{loopback(port)}
	free, err := freePorts(max(0, count-1))
	if err != nil {
		return err
	}
	for _, port := range free {
		addresses = append(addresses, loopback(port))
	}
	for i, address := range addresses {
		settings["ALMONER_LISTEN"] = address
		spec := s.spec(name, "serve", settings)
		if i > 0 {
			spec.Name, spec.Log = fmt.Sprint(spec.Name, i+1), s.home.logFile(fmt.Sprint(name, i+1))
			if s.options.Earlier != "" {
				spec.Path = filepath.Join(s.options.Earlier, name)
			}
		}
		service, err := s.observed(&Service{Name: spec.Name, URL: "http://" + address, spec: spec})
		if err != nil {
			return err
		}
		*into = append(*into, service)
		if name == resourceapi && i == 0 {
			s.Resourceapi = service
		}
		if err := service.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// observed makes a service serve metrics if Options.Observed is set.
func (s *Stack) observed(service *Service) (*Service, error) {
	if !s.options.Observed {
		return service, nil
	}
	port, err := localstore.FreePort()
	if err != nil {
		return nil, err
	}
	service.Metrics = "http://" + loopback(port) + metrics.Path
	service.spec.Env = append(service.spec.Env, "ALMONER_METRICS_LISTEN="+loopback(port))
	return service, nil
}

// services returns all processes of both services.
func (s *Stack) services() []*Service {
	all := slices.Concat(s.Authservers, s.Resources)
	if s.Worker != nil {
		all = append(all, s.Worker)
	}
	return all
}

// spec returns how a service is run: with these settings and those of the options, and without the rest of the
// environment.
func (s *Stack) spec(service, command string, settings map[string]string) child.Spec {
	all := map[string]string{
		"ALMONER_BASE_URL": s.BaseURL,
		"ALMONER_NOTICE":   "0s",
		// As in the manifests: little is in use, so that the default of 100 would collect garbage many times a second.
		"GOGC":       "400",
		"GOMEMLIMIT": "48MiB",
		"PATH":       "/usr/local/bin:/usr/bin:/bin",
		"TZ":         "UTC",
	}
	maps.Copy(all, s.traceSettings())
	maps.Copy(all, settings)
	maps.Copy(all, s.options.Settings)
	return child.Spec{
		Name: service,
		Path: filepath.Join(s.options.Binaries, service),
		Args: []string{command},
		Dir:  "/",
		Env:  pairs(all),
		Log:  s.home.logFile(service),
	}
}

// pairs returns settings in the form of an environment.
func pairs(settings map[string]string) []string {
	var environ []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		environ = append(environ, name+"="+settings[name])
	}
	return environ
}

// Collector returns Options.Collector.
func (s *Stack) Collector() string { return s.options.Collector }

// traceSettings returns the standard OpenTelemetry settings: those of the environment, or a test's.
func (s *Stack) traceSettings() map[string]string {
	out := map[string]string{}
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			out[name] = value
		}
	}
	if s.options.Collector != "" {
		out["OTEL_EXPORTER_OTLP_ENDPOINT"] = s.options.Collector
		out["OTEL_BSP_SCHEDULE_DELAY"] = strconv.FormatInt(traceDelay.Milliseconds(), 10)
	}
	return out
}

func (s *Stack) backends() gateway.Backends {
	parse := func(service *Service) *url.URL {
		return &url.URL{Scheme: "http", Host: service.URL[len("http://"):]}
	}
	var b gateway.Backends
	for _, service := range s.Authservers {
		b.Account = append(b.Account, parse(service))
	}
	for _, service := range s.Resources {
		b.Resource = append(b.Resource, parse(service))
	}
	return b
}

// Wait returns nil when ctx ends, and an error when a part ends by itself.
func (s *Stack) Wait(ctx context.Context) error {
	ended := make(chan error, len(s.services())+3)
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
		process := service.current()
		watch(process.Done(), func() error { return service.ended(process) })
	}
	if s.Postgres != nil {
		watch(s.Postgres.Done(), func() error { return errors.New(s.Postgres.Outcome()) })
	}
	if s.Redis != nil {
		watch(s.Redis.Done(), func() error { return errors.New(s.Redis.Outcome()) })
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
			if service.current() != nil {
				group.Go(service.Stop)
			}
		}
		group.Wait()
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
