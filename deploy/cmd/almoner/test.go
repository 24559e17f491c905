package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/apt"
)

// A module is a module of the repository. modules lists dependencies first.
type module struct {
	name string
	race bool // test with the race detector; e2e does not, since the product runs in other processes

	alone bool // test one package at a time: each starts its own servers and depends on time

	outside bool // not in go.work, since its dependencies are its own
}

// workspace returns the environment that go needs for the module.
func (m module) workspace() []string {
	if m.outside {
		return []string{"GOWORK=off"}
	}
	return nil
}

func modules() []module {
	return []module{
		{name: "shared", race: true},
		{name: "shared/client", race: true},
		{name: "shared/devkit", race: true},
		{name: "deploy"},
		{name: "deploy/checks", outside: true},
		{name: "deploy/release", outside: true},
		{name: "resourceapi", race: true},
		{name: "authserver", race: true},
		{name: "e2e", alone: true},
	}
}

// A testRun is one run of `make test`. A failed step does not prevent later steps.
type testRun struct {
	root   string
	tools  string   // privately installed packages
	bin    string   // built services and checkers
	env    []string // environment of every step
	failed []string
}

// newTestRun sets the build flags of what is shipped (stack.Flags), so that the build cache serves all steps, including
// the container images.
func newTestRun(root string) *testRun {
	home := filepath.Join(root, ".almoner")
	flags := append([]string{os.Getenv("GOFLAGS"), "-mod=readonly"}, stack.Flags()...)
	return &testRun{
		root:  root,
		tools: filepath.Join(home, "tools"),
		bin:   filepath.Join(home, "test-bin"),
		env: append(
			os.Environ(),
			"GOTOOLCHAIN=local",
			"CGO_ENABLED=0",
			"GOFLAGS="+strings.TrimSpace(strings.Join(flags, " ")),
		),
	}
}

func test(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	t := newTestRun(root)
	race, err := t.ensurePackages(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.bin, 0o755); err != nil {
		return err
	}
	t.check(ctx)
	if err := t.testModules(ctx, race); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(t.failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(t.failed, "; "))
	}
	fmt.Println("almoner: all checks and tests passed")
	return nil
}

// testModules runs the tests of every module.
func (t *testRun) testModules(ctx context.Context, race bool) error {
	return t.withServers(ctx, func() { t.testEach(ctx, race) })
}

// withServers calls run with one PostgreSQL server, which it starts and stops, and with the services built.
func (t *testRun) withServers(ctx context.Context, run func()) error {
	dir, err := localstore.TempDir("almoner-test-postgres-")
	if err != nil {
		return err
	}
	lifeline, err := localstore.RemoveAfterUs(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	server, err := localstore.StartPostgres(ctx, localstore.Options{Dir: dir, Tools: t.tools, Volatile: true})
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := stack.Build(ctx, t.root, t.bin); err != nil {
		return err
	}
	t.env = append(t.env, "ALMONER_TEST_POSTGRES_URL="+server.URL, "ALMONER_TEST_TOOLS="+t.tools,
		"ALMONER_TEST_BINARIES="+t.bin, "ALMONER_TEST_CHROMIUM="+findChromium(t.tools))
	run()
	return nil
}

func (t *testRun) testEach(ctx context.Context, race bool) {
	for _, m := range modules() {
		flags := []string{"-timeout=20m"}
		if m.race && race {
			flags = append(flags, "-race")
		}
		if m.alone {
			flags = append(flags, "-p=1")
		}
		t.testModule(ctx, m, flags)
	}
}

// step runs a command in a module, shows its output, and records a failure.
func (t *testRun) step(ctx context.Context, name, module string, extra []string, program string, arguments ...string) {
	if ctx.Err() != nil {
		return
	}
	fmt.Println("almoner: " + name)
	began := time.Now()
	err := t.command(ctx, module, extra, os.Stdout, program, arguments...).Run()
	if err != nil && ctx.Err() == nil {
		t.failed = append(t.failed, name)
		fmt.Printf("almoner: %s FAILED after %s: %v\n", name, time.Since(began).Round(time.Second), err)
	}
}

// ensureGateways installs the reverse proxies of a deployment. Their tests are skipped with a message if they are
// missing.
func (t *testRun) ensureGateways(ctx context.Context, say func(string)) {
	for _, name := range gateway.Packages() {
		if _, err := gateway.Find(name, t.tools); err == nil {
			continue
		}
		if err := apt.Ensure(ctx, t.tools, say, name); err != nil {
			say(name + " is missing, so its gateway tests are skipped: " + err.Error())
		}
	}
}

// ensurePromtool installs promtool. The alerts' test is skipped with a message if it is missing.
func (t *testRun) ensurePromtool(ctx context.Context, say func(string)) {
	_, err := exec.LookPath("promtool")
	if _, missing := os.Stat(filepath.Join(t.tools, "root", "usr", "bin", "promtool")); err == nil || missing == nil {
		return
	}
	if err := apt.Ensure(ctx, t.tools, say, "prometheus"); err != nil {
		say("promtool is missing, so the tests of the alerts are skipped: " + err.Error())
	}
}

// ensurePackages installs what the tests need and reports whether the race detector works. Only the stores are
// required.
func (t *testRun) ensurePackages(ctx context.Context) (race bool, err error) {
	say := func(line string) { fmt.Println("almoner: " + line) }
	if err := ensureStores(ctx, stack.Options{Tools: t.tools, Say: say}); err != nil {
		return false, err
	}
	if findChromium(t.tools) == "" {
		if err := apt.Ensure(ctx, t.tools, say, "chromium"); err != nil {
			say("Chromium is missing, so tests that need a browser fail: " + err.Error())
		}
	}
	t.ensureGateways(ctx, say)
	t.ensurePromtool(ctx, say)
	race = t.raceWorks(ctx)
	if !race && os.Geteuid() == 0 {
		if err := apt.Ensure(ctx, t.tools, say, "gcc", "libc6-dev"); err == nil {
			race = t.raceWorks(ctx)
		}
	}
	if !race {
		say("a C compiler is missing, so tests run without the race detector")
	}
	return race, errors.Join(ctx.Err())
}
