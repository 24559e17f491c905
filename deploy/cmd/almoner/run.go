package main

import (
	"context"
	_ "embed" // for guideText
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
)

// buildServices builds the services and reports the duration.
func buildServices(ctx context.Context, root string, options stack.Options) error {
	hint := ""
	if _, err := os.Stat(filepath.Join(options.Binaries, stack.Services()[0])); err != nil {
		hint = " (the first build takes some minutes)"
	}
	options.Progress("building the services" + hint)
	began := time.Now()
	for _, service := range stack.Services() {
		if err := stack.BuildModule(ctx, root, options.Binaries, service); err != nil {
			return err
		}
	}
	options.Progress("built the services in " + time.Since(began).Round(100*time.Millisecond).String())
	return nil
}

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

		LocalReceivers: true,
		Progress:       func(line string) { fmt.Println("almoner: " + line) },
	}
	redisurl.LogTo(slog.New(slog.DiscardHandler)) // errors say the same
	if err := stack.Check(ctx, options); err != nil {
		return err // before anything is installed or built
	}
	if err := ensureStores(ctx, options); err != nil {
		return err
	}
	began := time.Now()
	if err := buildServices(ctx, root, options); err != nil {
		return err
	}
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	options.Progress("everything runs, after " + time.Since(began).Round(time.Second).String())
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

//go:embed guide.txt
var guideText string

var guide = template.Must(template.New("guide").Parse(guideText))

// printGuide prints addresses, logins and example requests.
func printGuide(out io.Writer, s *stack.Stack, file string) {
	_ = guide.Execute(out, struct {
		demo.Demo
		File, Logs, Data string
	}{s.Demo, file, s.LogDir(), s.StoreDir()})
}
