package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

const (
	readyWithin = 4 * time.Minute // a service that fails ends earlier
	stopWithin  = time.Minute     // a service waits 20 s for requests in flight
)

// A Service is a process of authserver or resourceapi.
type Service struct {
	Name string
	URL  string // its own address, without the gateway
	// Metrics is the address of its metrics; "" if Options.Observed is false.
	Metrics string

	spec child.Spec
	mu   sync.Mutex
	run  *child.Child
}

func (s *Service) start(ctx context.Context) error {
	process, err := child.Start(s.spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.run = process
	s.mu.Unlock()
	return s.waitReady(ctx, process)
}

func (s *Service) waitReady(ctx context.Context, process *child.Child) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		r := ask(ctx, s.URL)
		if r.ready {
			return nil
		}
		select {
		case <-process.Done():
			return s.ended(process)
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (%s); its log is %s: %w", s.Name, r.trouble, s.spec.Log,
				ctx.Err())
		case <-time.After(30 * time.Millisecond):
		}
	}
}

func (s *Service) ended(process *child.Child) error {
	return fmt.Errorf("%s (its log is %s)", process.Outcome(), s.spec.Log)
}

// Setting returns the value of a setting of the service, ALMONER_…; "" if it has none.
func (s *Service) Setting(name string) string {
	for _, setting := range s.spec.Env {
		if value, is := strings.CutPrefix(setting, name+"="); is {
			return value
		}
	}
	return ""
}

// Set changes a setting from the next start on.
func (s *Service) Set(name, value string) {
	others := slices.DeleteFunc(
		slices.Clone(s.spec.Env),
		func(setting string) bool { return strings.HasPrefix(setting, name+"=") },
	)
	s.spec.Env = append(others, name+"="+value)
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

func (s *Service) current() *child.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// PID returns the ID of the current process.
func (s *Service) PID() int { return s.current().PID() }

// Done returns a channel that is closed when the current process has ended, for any reason.
func (s *Service) Done() <-chan struct{} { return s.current().Done() }

// Stop sends SIGTERM, which lets requests in flight finish, and waits for the end.
func (s *Service) Stop() { s.current().Stop(syscall.SIGTERM, stopWithin) }

// Kill ends the service immediately (SIGKILL).
func (s *Service) Kill() { s.current().Kill() }

// Pause freezes the service (SIGSTOP): connections stay open without responses.
func (s *Service) Pause() error { return s.current().Pause() }

// Resume continues a paused service.
func (s *Service) Resume() { s.current().Resume() }

// Restart stops the service if it runs, starts it at the same address and waits until it is ready.
func (s *Service) Restart(ctx context.Context) error {
	s.Stop()
	return s.start(ctx)
}
