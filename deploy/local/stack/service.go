package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// A Service is a process of authserver or resourceapi.
type Service struct {
	child.Server
	Name string
	URL  string // its own address, without the gateway
	// Metrics is the address of its metrics; "" if Options.Observed is false.
	Metrics string

	spec     child.Spec // without the environment
	settings map[string]string
}

func (s *Service) start(ctx context.Context) error {
	spec := s.spec
	spec.Env = pairs(s.settings)
	return child.Launch(ctx, &s.Server, spec, func(*child.Child) error { return ask(ctx, s.URL).err() })
}

// Setting returns the value of a setting of the service, ALMONER_…; "" if it has none.
func (s *Service) Setting(name string) string { return s.settings[name] }

// Set changes a setting from the next start on.
func (s *Service) Set(name, value string) {
	settings := maps.Clone(s.settings) // others may be reading it
	settings[name] = value
	s.settings = settings
}

// SetFile makes the service read a setting from a file from the next start on.
func (s *Service) SetFile(name, path string) {
	s.Set(name, "")
	s.Set(name+"_FILE", path)
}

// Log returns the path of the log of all its processes.
func (s *Service) Log() string { return s.spec.Log }

// Use makes the service run its program in a directory of other binaries from the next start on.
func (s *Service) Use(binaries string) {
	s.spec.Path = filepath.Join(binaries, filepath.Base(s.spec.Path))
}

// Through makes another program start the service from the next start on. The program gets the service's command line
// as its last arguments and must become that process (exec).
func (s *Service) Through(command ...string) {
	s.spec.Args = slices.Concat(command[1:], []string{s.spec.Path}, s.spec.Args)
	s.spec.Path = command[0]
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

// readiness is the state that a service reports (/readyz).
type readiness struct {
	ready   bool
	trouble string // what does not work, even if the service is ready; "" if everything works
}

func (r readiness) err() error {
	if r.ready {
		return nil
	}
	return errors.New(r.trouble)
}

// ask returns the readiness of the service at an address.
func ask(ctx context.Context, address string) readiness {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return readiness{trouble: "it has no address"}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return readiness{trouble: "it does not respond: " + withoutURL(err).Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12)) // without the body, the status is used
	return readiness{response.StatusCode == http.StatusOK, troubleIn(response.StatusCode, body)}
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
		trouble := ask(ctx, service.URL).trouble
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
	named = append(named, "its log is "+service.spec.Log)
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
		s.options.say(fmt.Sprintf("%s runs again (%s); its data is there", name, seconds(time.Since(began))))
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

// seconds returns a duration in a form for people.
func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
