package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/server"
)

// A Service is a process of authserver or resourceapi.
type Service struct {
	child.Server
	Name string
	URL  string // its own address, without the gateway
	// Metrics is the address of its metrics; "" if Options.Observed is false.
	Metrics string
	// Spec is how its program is run, without the environment. Changes apply from the next start on.
	Spec child.Spec

	settings map[string]string
}

func (s *Service) start(ctx context.Context) error {
	spec := s.Spec
	spec.Env = pairs(s.settings)
	return child.Launch(ctx, &s.Server, spec, func(*child.Child) error {
		if ready, trouble := ask(ctx, s.URL); !ready {
			return errors.New(trouble)
		}
		return nil
	})
}

// Setting returns the value of a setting of the service, ALMONER_…; "" if it has none.
func (s *Service) Setting(name string) string { return s.settings[name] }

// Set changes a setting from the next start on.
func (s *Service) Set(name, value string) {
	settings := maps.Clone(s.settings) // others may be reading it
	settings[name] = value
	s.settings = settings
}

// Restart stops the service if it runs, starts it at the same address and waits until it is ready.
func (s *Service) Restart(ctx context.Context) error {
	s.Stop()
	return s.start(ctx)
}

const (
	askWithin  = 5 * time.Second // longer than a service waits for all its stores in turn
	watchEvery = 5 * time.Second
)

// ask returns whether the service at an address reports that it is ready (/readyz), and what does not work, even if it
// is ready; "" if everything works.
func ask(ctx context.Context, address string) (ready bool, trouble string) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return false, "it has no address"
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, "it does not respond: " + withoutURL(err).Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12)) // without the body, the status is used
	return response.StatusCode == http.StatusOK, troubleIn(response.StatusCode, body)
}

// troubleIn returns the parts that do not work ({"redis":"does not answer"}), or the message of an error.
func troubleIn(status int, body []byte) string {
	var parts map[string]string
	if json.Unmarshal(body, &parts) == nil {
		var found []string
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if parts[name] != "ok" {
				found = append(found, name+" "+parts[name])
			}
		}
		if len(found) > 0 || status == http.StatusOK {
			return strings.Join(found, ", ")
		}
	}
	var refusal struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &refusal) == nil && refusal.Error.Message != "" {
		return refusal.Error.Message
	}
	if status == http.StatusOK {
		return ""
	}
	return fmt.Sprint("it returns status ", status)
}

// Watch reports every change of the services' readiness to Options.Progress, until ctx ends.
func (s *Stack) Watch(ctx context.Context) {
	reported := map[*Service]string{}
	for {
		s.look(ctx, reported)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// look checks each service once. reported holds the last report for each.
func (s *Stack) look(ctx context.Context, reported map[*Service]string) {
	for _, service := range s.services() {
		_, trouble := ask(ctx, service.URL)
		if ctx.Err() != nil {
			return
		}
		if trouble != reported[service] {
			reported[service] = trouble
			s.options.say(s.report(service, trouble))
		}
	}
}

// report describes what is wrong with a service and where to look.
func (s *Stack) report(service *Service, trouble string) string {
	if trouble == "" {
		return service.Name + " works again"
	}
	var named []string
	for _, store := range []struct{ name, setting, value string }{
		{"postgres", "ALMONER_DATABASE_URL", s.options.DatabaseURL}, {"redis", "ALMONER_REDIS_URL", s.options.RedisURL},
	} {
		if strings.Contains(trouble, store.name) && store.value != "" {
			named = append(named, "check "+store.setting)
		}
	}
	named = append(named, "its log is "+service.Spec.Log)
	return service.Name + " has a problem: " + trouble + " (" + strings.Join(named, "; ") + ")"
}

const (
	// A store that ends more than healings times within healingsWithin is not started again.
	healings       = 3
	healingsWithin = time.Minute

	// A store is started up to startTries times, startPause apart, because a session of the ended server may still use
	// its port or its shared memory.
	startTries = 3
	startPause = time.Second
)

// A store is a private server, PostgreSQL or Redis.
type store interface {
	Done() <-chan struct{}
	Outcome() string
	Restart(ctx context.Context) error
}

// keep starts a store again whenever it ends by itself, until ctx ends. It returns an error when the store does not
// start, or ends again and again.
func (s *Stack) keep(ctx context.Context, name string, server store) error {
	var ends []time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		outcome, began := server.Outcome(), time.Now()
		ends = append(ends, began)
		if n := len(ends) - 1 - healings; n >= 0 && began.Sub(ends[n]) < healingsWithin {
			return fmt.Errorf("%s; it ended %d times within a minute", outcome, healings+1)
		}
		s.options.say(outcome + "; starting it again")
		if err := s.startAgain(ctx, name, server); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf(
				"%s, and %s cannot be started again: %w (its data is in %s; remove the cause, then type make run)",
				outcome, name, err, s.StoreDir())
		}
		took := time.Since(began).Round(100 * time.Millisecond)
		s.options.say(fmt.Sprintf("%s runs again (%s); its data is there", name, took))
	}
}

// startAgain starts a store that has ended. It returns the error of the last try. A start that exceeded its time limit
// is not repeated: PostgreSQL would recover from the crash again from the beginning.
func (s *Stack) startAgain(ctx context.Context, name string, server store) error {
	for try := 1; ; try++ {
		err := server.Restart(ctx)
		if err == nil || try == startTries || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		s.options.say(fmt.Sprintf("%s did not start: %v; trying again", name, err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startPause):
		}
	}
}

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
	if err != nil {
		return err
	}
	s.Resourceapi = s.Resources[0]
	if !s.options.Worker {
		return nil
	}
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
		Spec:     spec,
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

// hosts returns the addresses of processes, with their ports.
func hosts(services []*Service) (all []string) {
	for _, service := range services {
		all = append(all, strings.TrimPrefix(service.URL, "http://"))
	}
	return all
}

// AdminFile returns the path of the settings file for `authserver admin` of this installation, which only its owner can
// read.
func (s *Stack) AdminFile() string { return s.home.path("admin.env") }

// ResourceapiFile returns the path of the settings file for the commands of resourceapi, which only its owner can read.
func (s *Stack) ResourceapiFile() string { return s.home.path("resourceapi.env") }

// Authserver returns the path of the authserver binary.
func (s *Stack) Authserver() string { return filepath.Join(s.options.Binaries, authserver) }

// writeSettingsFiles replaces the files at each start, because the stores' ports change.
func (s *Stack) writeSettingsFiles() error {
	admin := s.settings(authserver)
	if address, sends := s.mailSettings()["ALMONER_SMTP_URL"]; sends {
		admin["ALMONER_SMTP_URL"] = address
	}
	return errors.Join(writeSettings(s.AdminFile(), admin), writeSettings(s.ResourceapiFile(), s.settings(resourceapi)))
}

// writeSettings writes settings in the format of --config.
func writeSettings(path string, settings map[string]string) error {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		// Only a URL can contain a quote; a strings.Builder never fails.
		_, _ = fmt.Fprintf(&lines, "%s='%s'\n", name, strings.ReplaceAll(settings[name], "'", "%27"))
	}
	return localstore.WriteWhole(path, lines.String())
}
