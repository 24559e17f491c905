// Command almoner is the program behind the Makefile: it runs all of Almoner on this machine (make run), all tests
// (make test), the long forms of the torture suites (make torture), the fuzz tests (make fuzz), mutation tests (make
// mutants), and the measurements (make bench).
package main

import (
	"cmp"
	"context"
	_ "embed" // for guideText
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"text/template"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const usage = `usage: almoner run             start everything with demo data and run until Ctrl-C
       almoner test            check and test every module
       almoner generate        regenerate the tables of settings
       almoner screenshots     write pictures of all pages to .almoner/screenshots
       almoner bench [PART]    measure the speed and write the results to e2e/bench/RESULTS.md
       almoner torture PART    run the long form of a suite, up to 40 minutes, and add the results to e2e/EVIDENCE.md
       almoner fuzz TIME ONLY  run the fuzz tests whose names match ONLY ("" for all), each for a time (30s) or a
                               number of inputs (1000000x), and add the results to e2e/EVIDENCE.md
       almoner mutants FOLDER TESTS
                               change the package in one place at a time, and list the changes that its tests miss,
                               and those of the packages TESTS (folders separated by commas, or "")

The settings of run are in deploy/SETTINGS.md.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends this process, and the kernel ends its children
	}()
	root, err := localstore.RepositoryRoot()
	if err == nil {
		err = command(ctx, root)
	}
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	case ctx.Err() != nil: // the failure follows from the interruption
		fmt.Fprintln(os.Stderr, "almoner: interrupted; everything was stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "almoner:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("unknown command")

func command(ctx context.Context, root string) error {
	if len(os.Args) < 2 {
		return errUsage
	}
	if err := dieWithParent(); err != nil {
		return err
	}
	arguments := os.Args[2:]
	switch called := fmt.Sprint(os.Args[1], " ", len(arguments)); called {
	case "run 0":
		return run(ctx, root)
	case "test 0":
		return test(ctx, root)
	case "generate 0":
		return generate(ctx, root)
	case "screenshots 0":
		return screenshots(ctx, root)
	case "bench 0":
		return bench(ctx, root, defaultMeasurement)
	case "bench 1":
		return bench(ctx, root, cmp.Or(arguments[0], defaultMeasurement))
	case "torture 1":
		return torture(ctx, root, arguments[0])
	case "fuzz 2":
		return fuzz(ctx, root, arguments[0], arguments[1])
	case "mutants 2":
		return mutants(ctx, root, arguments[0], arguments[1])
	}
	return errUsage
}

// dieWithParent makes the kernel send SIGTERM to this process when make, its parent, ends, so that killing make with
// SIGKILL leaves no process either. Started by hand, the process outlives the shell as any program does.
func dieWithParent() error {
	if os.Getenv("MAKELEVEL") == "" {
		return nil
	}
	// The kernel stores this setting with the thread; the main thread lives as long as the program.
	runtime.LockOSThread()
	signal := uintptr(syscall.SIGTERM)
	_, _, code := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, signal, 0)
	if code != 0 {
		return code
	}
	if os.Getppid() == 1 {
		return errors.New("make has ended")
	}
	return nil
}

// generate rewrites the files in the repository that are generated from the code.
func generate(ctx context.Context, root string) error {
	bin := filepath.Join(root, ".almoner", "bin")
	if err := stack.Build(ctx, root, bin, stack.Services()); err != nil {
		return err
	}
	files, err := settings.Files(ctx, root, bin)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o644); err != nil {
			return err
		}
		fmt.Println("almoner: " + path)
	}
	return nil
}

// screenshots writes pictures of all pages to .almoner/screenshots, without those of an earlier run.
func screenshots(ctx context.Context, root string) error {
	folder := filepath.Join(root, ".almoner", "screenshots")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	t, _, err := begin(ctx, root)
	if err != nil {
		return err
	}
	return t.result(t.withServers(ctx, func() {
		t.endToEnd(ctx, "screenshots", "-timeout=20m", "-run=^TestScreenshots$", ".", "-screenshots="+folder)
	}))
}

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
	var config settings.Run
	if _, err := envconf.Load(&config, os.Environ()); err != nil {
		return err
	}
	home := cmp.Or(config.Home, filepath.Join(root, ".almoner"))
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
	_ = guide.Execute(os.Stdout, struct { // addresses, logins and example requests
		demo.Demo
		File, Logs, Data string
	}{s.Demo, filepath.Join(home, "demo.json"), s.LogDir(), s.StoreDir()})
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
