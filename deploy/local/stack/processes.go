package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/server"
)

// settings are the settings of a service that its commands need too.
func (s *Stack) settings(service string) map[string]string {
	return map[string]string{
		"ALMONER_BASE_URL":     s.BaseURL,
		"ALMONER_APP_URL":      s.AppURL,
		"ALMONER_DATABASE_URL": s.logins[service],
		"ALMONER_REDIS_URL":    s.RedisURL,
		"ALMONER_KEYS":         s.home.seed.Key(service),
	}
}

// servingSettings are the settings with which a service serves: with those of the gateway, of webhook receivers, and of
// Options.PostgresProxy.
func (s *Stack) servingSettings(service string) (map[string]string, error) {
	settings, err := s.receiverSettings()
	if err != nil {
		return nil, err
	}
	maps.Copy(settings, s.settings(service))
	settings["ALMONER_TRUSTED_PROXIES"] = gateway.SourceAddress
	if s.options.PostgresProxy != nil {
		address, err := url.Parse(s.logins[service])
		if err != nil {
			return nil, errors.New("invalid URL of the database")
		}
		address.Host = s.options.PostgresProxy(address.Host)
		settings["ALMONER_DATABASE_URL"] = address.String()
	}
	return settings, nil
}

func (s *Stack) startServices(ctx context.Context) error {
	accounts, err := s.servingSettings(authserver)
	if err != nil {
		return err
	}
	maps.Copy(accounts, s.mailSettings())
	err = s.startEach(ctx, authserver, s.ports.app, s.options.Authservers, &s.Authservers, accounts)
	if err != nil {
		return err
	}
	settings, err := s.servingSettings(resourceapi)
	if err != nil {
		return err
	}
	// Directly from authserver, because the gateway starts after the services.
	settings["ALMONER_JWKS_URL"] = s.Authservers[0].URL + "/v1/account/oauth/jwks"
	settings["ALMONER_WORKER"] = strconv.FormatBool(!s.options.Worker)
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
	s.Worker, err = s.newService(s.spec("worker", resourceapi, "worker"), port, settings)
	if err != nil {
		return err
	}
	return s.Worker.start(ctx)
}

// startEach starts the processes of a service, the first at the port. It appends each process to into, even if it does
// not start.
func (s *Stack) startEach(
	ctx context.Context, name string, port, count int, into *[]*Service, settings map[string]string,
) error {
	free, err := freePorts(max(0, count-1))
	if err != nil {
		return err
	}
	for i, port := range append([]int{port}, free...) {
		settings["ALMONER_LISTEN"] = loopback(port)
		spec := s.spec(name, name, "serve")
		if i > 0 {
			spec = s.spec(fmt.Sprint(name, i+1), name, "serve")
			if s.options.EarlierBinaries != "" {
				spec.Path = filepath.Join(s.options.EarlierBinaries, name)
			}
		}
		service, err := s.newService(spec, port, settings)
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

// newService returns a process that is not started yet. It serves metrics if Options.Observed is set.
func (s *Stack) newService(spec child.Spec, port int, settings map[string]string) (*Service, error) {
	service := &Service{
		Name:     spec.Name,
		URL:      "http://" + loopback(port),
		spec:     spec,
		settings: s.environment(settings),
	}
	if !s.options.Observed {
		return service, nil
	}
	metrics, err := localstore.FreePort()
	if err != nil {
		return nil, err
	}
	service.Metrics = "http://" + loopback(metrics) + server.MetricsPath
	service.Set("ALMONER_METRICS_LISTEN", loopback(metrics))
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

// spec returns how a program of a service is run, except for its environment. name is also that of its log.
func (s *Stack) spec(name, service string, arguments ...string) child.Spec {
	path := filepath.Join(s.options.Binaries, service)
	return child.Spec{Name: name, Path: path, Args: arguments, Dir: "/", Log: s.home.logFile(name)}
}

// environment returns the environment of a service: these settings and those of the options, and not the rest of this
// process's environment.
func (s *Stack) environment(settings map[string]string) map[string]string {
	all := map[string]string{
		"ALMONER_BASE_URL": s.BaseURL,
		"ALMONER_NOTICE":   "0s",
		// GOGC is as in the manifests: little is in use, so that the default of 100 would collect garbage many times a
		// second. GOMEMLIMIT is lower, because many stacks run on one machine.
		"GOGC":       "400",
		"GOMEMLIMIT": "48MiB",
		"PATH":       "/usr/local/bin:/usr/bin:/bin",
		"TZ":         "UTC",
	}
	maps.Copy(all, s.traceSettings())
	maps.Copy(all, settings)
	maps.Copy(all, s.options.Settings)
	return all
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
	return gateway.Backends{Account: addresses(s.Authservers), Resource: addresses(s.Resources)}
}

func addresses(services []*Service) (all []*url.URL) {
	for _, service := range services {
		all = append(all, &url.URL{Scheme: "http", Host: service.URL[len("http://"):]})
	}
	return all
}
