package stack

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// A Service is a process of authserver or resourceapi.
type Service struct {
	child.Server
	Name string
	URL  string // its own address, without the gateway
	// Metrics is the address of its metrics; "" if Options.Observed is false.
	Metrics string

	spec child.Spec
}

func (s *Service) start(ctx context.Context) error {
	return child.Launch(ctx, &s.Server, s.spec, func(*child.Child) error { return ask(ctx, s.URL).err() })
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
	isOld := func(setting string) bool { return strings.HasPrefix(setting, name+"=") }
	s.spec.Env = append(slices.DeleteFunc(slices.Clone(s.spec.Env), isOld), name+"="+value)
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
