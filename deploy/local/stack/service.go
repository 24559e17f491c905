package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

const (
	readyWithin = 60 * time.Second
	stopWithin  = 22 * time.Second // a service lets requests in flight finish for 20
)

// A Service is a process of authserver or resourceapi.
type Service struct {
	Name string
	URL  string // its own address, past the gateway
	// Metrics is where its metrics are; "" where Options.Observed is false.
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
			return fmt.Errorf(
				"%s does not become ready (%s); its log is %s: %w",
				s.Name,
				r.trouble,
				s.spec.Log,
				ctx.Err(),
			)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

func (s *Service) ended(process *child.Child) error {
	return fmt.Errorf("%s (its log is %s)", process.Outcome(), s.spec.Log)
}

// Setting is the value of a setting that the service is given, ALMONER_…; "" where it is given none.
func (s *Service) Setting(name string) string {
	for _, setting := range s.spec.Env {
		if value, is := strings.CutPrefix(setting, name+"="); is {
			return value
		}
	}
	return ""
}

// Set changes a setting, from the next start on.
func (s *Service) Set(name, value string) {
	others := slices.DeleteFunc(
		slices.Clone(s.spec.Env),
		func(setting string) bool { return strings.HasPrefix(setting, name+"=") },
	)
	s.spec.Env = append(others, name+"="+value)
}

// Through lets another program start the service, from the next start on: it is given the service's command line as its
// last arguments, and must become that process (exec).
func (s *Service) Through(command ...string) {
	s.spec.Args = slices.Concat(command[1:], []string{s.spec.Path}, s.spec.Args)
	s.spec.Path = command[0]
}

func (s *Service) current() *child.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// PID is the id of the process that runs now.
func (s *Service) PID() int { return s.current().PID() }

// Done is closed when the process that runs now has ended, for whatever reason.
func (s *Service) Done() <-chan struct{} { return s.current().Done() }

// Stop asks the service to end (SIGTERM), which lets requests in flight finish, and waits for it.
func (s *Service) Stop() { s.current().Stop(syscall.SIGTERM, stopWithin) }

// Kill ends the service at once (SIGKILL).
func (s *Service) Kill() { s.current().Kill() }

// Pause freezes the service (SIGSTOP): connections stay open, nothing answers.
func (s *Service) Pause() error { return s.current().Pause() }

// Resume lets a paused service go on.
func (s *Service) Resume() { s.current().Resume() }

// Restart ends the service if it runs, starts it again at the same address and waits until it is ready.
func (s *Service) Restart(ctx context.Context) error {
	s.Stop()
	return s.start(ctx)
}
