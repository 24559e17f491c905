package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/envconf"
)

func run(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	var config settings.Run
	if _, err := envconf.Load(&config, os.Environ()); err != nil {
		return err
	}
	home := config.Home
	if home == "" {
		home = filepath.Join(root, ".almoner")
	}
	options := stack.Options{
		Home:        home,
		Binaries:    filepath.Join(home, "bin"),
		Tools:       filepath.Join(home, "tools"),
		Port:        config.Port,
		DatabaseURL: config.DatabaseURL.Reveal(),
		RedisURL:    config.RedisURL.Reveal(),
		Mailbox:     true,
		Progress:    func(line string) { fmt.Println("almoner: " + line) },
	}
	if err := stack.Check(options); err != nil {
		return err // before anything is installed or built
	}
	if err := ensureStores(ctx, options); err != nil {
		return err
	}
	options.Progress("building the services")
	if err := stack.Build(ctx, root, options.Binaries); err != nil {
		return err
	}
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	printGuide(os.Stdout, s, filepath.Join(home, "demo.json"))
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	go s.Watch(watching)
	ended := s.Wait(ctx)
	endWatch()
	fmt.Println()
	options.Progress("stopping")
	s.Stop()
	if ended != nil {
		return fmt.Errorf("%w; everything else was stopped", ended)
	}
	options.Progress("stopped; the data is kept for the next start")
	return nil
}
