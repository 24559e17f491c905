package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A module is a module of the repository. modules lists dependencies first.
type module struct {
	name    string
	outside bool // not in go.work, since its dependencies are its own
}

func modules() []module {
	return []module{
		{name: "shared"},
		{name: "shared/client"},
		{name: "shared/devkit"},
		{name: "deploy"},
		{name: "deploy/checks", outside: true},
		{name: "deploy/release", outside: true},
		{name: "resourceapi"},
		{name: "authserver"},
		{name: endToEnd},
	}
}

// outside returns the modules that are not in go.work.
func outside() (names []string) {
	for _, m := range modules() {
		if m.outside {
			names = append(names, m.name)
		}
	}
	return names
}

// endToEnd is the module whose tests start the services as processes of their own. They run without the race detector,
// which would not see the services.
const endToEnd = "e2e"

// ownDependencies is the environment for go in a module without the workspace.
func ownDependencies() []string { return []string{"GOWORK=off"} }

// patterns returns the package patterns of the modules in go.work, for go in the root of the repository.
func patterns(except ...string) []string {
	var all []string
	for _, m := range modules() {
		if !m.outside && !slices.Contains(except, m.name) {
			all = append(all, "./"+m.name+"/...")
		}
	}
	return all
}

// A testRun is one run of `make test`. A failed step does not prevent later steps.
type testRun struct {
	root   string
	tools  string   // privately installed packages
	bin    string   // built services and checkers
	env    []string // environment of every step
	failed []string
	out    io.Writer // output of the steps
	// tempDir makes the directory of the servers' data. Measurements need a disk.
	tempDir func(pattern string) (string, error)
}

// newTestRun sets the build flags of what is shipped (stack.Flags), so that the build cache serves all steps, including
// the container images.
func newTestRun(root string) *testRun {
	home := filepath.Join(root, ".almoner")
	flags := append([]string{os.Getenv("GOFLAGS"), "-mod=readonly"}, stack.Flags()...)
	return &testRun{
		root:    root,
		tools:   filepath.Join(home, "tools"),
		bin:     filepath.Join(home, "test-bin"),
		out:     os.Stdout,
		tempDir: localstore.TempDir,
		env: append(os.Environ(), "GOTOOLCHAIN=local", "CGO_ENABLED=0",
			"GOFLAGS="+strings.TrimSpace(strings.Join(flags, " "))),
	}
}

// begin returns a run for whose tests everything is installed, and whether the race detector works.
func begin(ctx context.Context, root string) (t *testRun, race bool, err error) {
	if err := dieWithParent(); err != nil {
		return nil, false, err
	}
	t = newTestRun(root)
	race, err = t.ensurePackages(ctx)
	return t, race, err
}

// result returns err, or an error that names the failed steps.
func (t *testRun) result(err error) error {
	if err == nil && len(t.failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(t.failed, "; "))
	}
	return err
}

func test(ctx context.Context, root string) error {
	t, race, err := begin(ctx, root)
	if err != nil {
		return err
	}
	t.tempDir = tempDir
	if err := os.MkdirAll(t.bin, 0o755); err != nil {
		return err
	}
	t.check(ctx)
	if err := t.result(t.withServers(ctx, func() { t.testPackages(ctx, race) })); err != nil {
		return err
	}
	t.say("all checks and tests passed")
	return nil
}

// withServers builds the services, starts a PostgreSQL server, prepares the home that e2e copies for its stacks, and
// calls run. It stops the server afterwards. It returns an error if ctx ends.
func (t *testRun) withServers(ctx context.Context, run func()) error {
	dir, err := t.tempDir("almoner-test-")
	if err != nil {
		return err
	}
	lifeline, err := localstore.RemoveAfterUs(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	if err := os.Chmod(dir, 0o711); err != nil { // the servers' user must be able to enter it
		return err
	}
	server, err := localstore.StartPostgres(ctx,
		localstore.Options{Dir: filepath.Join(dir, "postgres"), Tools: t.tools, Volatile: true})
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := stack.Build(ctx, t.root, t.bin, stack.Services()); err != nil {
		return err
	}
	home := filepath.Join(dir, "home")
	prepared := stack.Options{
		Home:     home,
		Binaries: t.bin,
		Tools:    t.tools,
		Volatile: true,
	}
	if err := stack.Prepare(ctx, prepared); err != nil {
		return err
	}
	t.env = append(t.env, "ALMONER_TEST_POSTGRES_URL="+server.URL, "ALMONER_TEST_TOOLS="+t.tools,
		"ALMONER_TEST_BINARIES="+t.bin, "ALMONER_TEST_HOME="+home,
		localstore.ChromiumVariable+"="+localstore.FindChromium(t.tools))
	if err := t.keepFilesIn(filepath.Join(dir, "tmp")); err != nil {
		return err
	}
	run()
	return ctx.Err()
}

// keepFilesIn makes the tests create their files in dir, which is removed at the end. go keeps its own elsewhere: test
// programs are large.
func (t *testRun) keepFilesIn(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	t.env = append(t.env, "GOTMPDIR="+cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "TMPDIR="+dir)
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// testPackages runs the tests of every package once.
func (t *testRun) testPackages(ctx context.Context, race bool) {
	plain, concurrent, err := t.packages(ctx)
	if err != nil {
		t.failed = append(t.failed, err.Error())
		return
	}
	if !race {
		plain, concurrent = append(plain, concurrent...), nil
	}
	if len(concurrent) > 0 {
		arguments := slices.Concat([]string{"-race"}, testsAtOnce(), concurrent)
		t.goTest(ctx, "with the race detector", ".", []string{"CGO_ENABLED=1"}, arguments...)
	}
	t.say("tests of the modules outside go.work begin; their output follows after the next step")
	wait := t.inBackground(func(t *testRun) { t.testOutside(ctx) })
	t.goTest(ctx, "of the other packages", ".", nil, append(testsAtOnce(), plain...)...)
	wait()
	t.testEndToEnd(ctx)
}

// testOutside runs the tests of the modules that are not in go.work. They mostly wait for containers and for the disk.
func (t *testRun) testOutside(ctx context.Context) {
	for _, name := range outside() {
		t.goTest(ctx, "in "+name, name, ownDependencies(), "./...")
	}
}

// inBackground runs steps concurrently with the caller. The returned function waits for them, writes their output, and
// records their failures.
func (t *testRun) inBackground(run func(*testRun)) (wait func()) {
	var out bytes.Buffer
	background := *t
	background.out, background.failed = &out, nil
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(&background)
	}()
	return func() {
		<-done
		_, _ = out.WriteTo(t.out)
		t.failed = append(t.failed, background.failed...)
	}
}

// testEndToEnd runs the tests of e2e, two packages at once, or one if there is one processor. More would slow down the
// services and browsers of a test until its requests time out. The packages that take longest start first, then
// runbooks, which mostly waits.
func (t *testRun) testEndToEnd(ctx context.Context) {
	packages := []string{".", "./torture", "./runbooks", "./..."}
	atOnce := fmt.Sprintf("-p=%d", min(2, runtime.NumCPU()))
	t.goTest(ctx, "in "+endToEnd, endToEnd, []string{endToEndFlags()}, append([]string{atOnce}, packages...)...)
}

// endToEndFlags leaves out the build tags: browsers and gateways use HTTP/2, which the services' tags exclude.
func endToEndFlags() string {
	return "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=readonly -trimpath")
}

// goTest runs tests in a folder. Their packages were vetted before. Test programs have no debugging information (-w),
// so that linking them is quicker.
func (t *testRun) goTest(ctx context.Context, which, folder string, extra []string, arguments ...string) {
	arguments = append([]string{"test", "-vet=off", "-ldflags=-w", "-timeout=" + testsWithin}, arguments...)
	t.step(ctx, "tests "+which, folder, extra, "go", arguments...)
}

// testsAtOnce returns the flags for the number of parallel packages and of parallel tests of a package. Most tests wait
// for a store, but with one processor more of them would slow down each other until they time out.
func testsAtOnce() []string {
	if runtime.NumCPU() == 1 {
		return []string{"-p=2", "-parallel=2"}
	}
	return []string{"-p=3", "-parallel=4"}
}

// testsWithin is the time limit of one package. The longest take 4 minutes on two processors, and ten times as long on
// one that has other work.
const testsWithin = "60m"

// step runs a command in a module, shows its output, and records a failure.
func (t *testRun) step(ctx context.Context, name, module string, extra []string, program string, arguments ...string) {
	if ctx.Err() != nil {
		return
	}
	t.say(name)
	began := time.Now()
	command := t.command(ctx, module, extra, t.out, program, arguments...)
	err := command.Run()
	took := time.Since(began).Round(time.Second)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.failed = append(t.failed, name)
		t.say(fmt.Sprintf("%s FAILED after %s: %v", name, took, err))
	case took > 0:
		processors := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
		t.say(fmt.Sprintf("%s: %s, with %s of processor time", name, took, processors.Round(time.Second)))
	}
}

func (t *testRun) say(line string) { _, _ = fmt.Fprintln(t.out, "almoner: "+line) }

// ensureOptional installs the reverse proxies of a deployment and promtool. Their tests are skipped with a message if
// they are missing.
func (t *testRun) ensureOptional(ctx context.Context) {
	install := func(missing error, program, debianPackage, skipped string) {
		if missing == nil {
			return
		}
		if err := installPackages(ctx, t.tools, t.say, debianPackage); err != nil {
			t.say(program + " is missing, so " + skipped + " are skipped: " + err.Error())
		}
	}
	for _, name := range gateway.Packages() {
		_, missing := gateway.Find(name, t.tools)
		install(missing, name, name, "its gateway tests")
	}
	_, missing := exec.LookPath("promtool")
	if missing != nil {
		_, missing = os.Stat(filepath.Join(t.tools, "root", "usr", "bin", "promtool"))
	}
	install(missing, "promtool", "prometheus", "the tests of the alerts")
}

// ensureChromium installs a browser. The full Chromium is used where the headless one is not in the system's packages.
func (t *testRun) ensureChromium(ctx context.Context) {
	missing := func() bool { return localstore.FindChromium(t.tools) == "" }
	headless := func() bool {
		return strings.Contains(filepath.Base(localstore.FindChromium(t.tools)), localstore.HeadlessChromium)
	}
	var err error
	if os.Getenv(localstore.ChromiumVariable) == "" && !headless() {
		err = installPackages(ctx, t.tools, t.say, localstore.HeadlessChromium)
	}
	if missing() {
		err = installPackages(ctx, t.tools, t.say, "chromium")
	}
	if missing() {
		t.say("Chromium is missing, so tests that need a browser fail: " + fmt.Sprint(err))
	}
}

// ensurePackages installs what the tests need and reports whether the race detector works. Only the stores are
// required.
func (t *testRun) ensurePackages(ctx context.Context) (race bool, err error) {
	if err := ensureStores(ctx, stack.Options{Tools: t.tools, Progress: t.say}); err != nil {
		return false, err
	}
	t.ensureChromium(ctx)
	t.ensureOptional(ctx)
	race = t.raceWorks(ctx)
	if !race && os.Geteuid() == 0 {
		if err := installPackages(ctx, t.tools, t.say, "gcc", "libc6-dev"); err == nil {
			race = t.raceWorks(ctx)
		}
	}
	if !race {
		t.say("a C compiler is missing, so tests run without the race detector")
	}
	return race, ctx.Err()
}

const (
	memoryDir      = "/dev/shm"
	tmpfs          = 0x01021994 // its number in statfs(2)
	memoryForFiles = 4 << 30    // several times what `make test` needs at once
	memoryForAll   = 8 << 30    // leaves the processes what they need
)

// tempDir returns a new directory for the files of a test run: in memory if there is much free memory, otherwise on
// disk. The tests create and drop about a thousand databases; on ext4 the kernel spends more time on their files than
// PostgreSQL on their content.
func tempDir(pattern string) (string, error) {
	if freeFor(memoryDir) >= memoryForFiles && availableMemory() >= memoryForAll {
		if dir, err := os.MkdirTemp(memoryDir, pattern); err == nil {
			if localstore.Reachable(memoryDir) && runsPrograms(dir) {
				return dir, nil
			}
			_ = os.RemoveAll(dir)
		}
	}
	return localstore.TempDir(pattern)
}

// freeFor returns the free bytes of a file system in memory, or 0 if dir is not in one.
func freeFor(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Type != tmpfs {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// availableMemory returns the bytes that the kernel can give to processes, or 0 if it does not say (proc(5)).
func availableMemory() uint64 {
	content, err := os.ReadFile("/proc/meminfo")
	found := memAvailable.FindSubmatch(content)
	if err != nil || found == nil {
		return 0
	}
	kilobytes, _ := strconv.ParseUint(string(found[1]), 10, 64) // only digits
	return kilobytes << 10
}

// runsPrograms reports whether programs in dir can be run: containers often mount /dev/shm without that.
func runsPrograms(dir string) bool {
	program := filepath.Join(dir, "probe")
	defer func() { _ = os.Remove(program) }()
	return os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700) == nil && exec.Command(program).Run() == nil
}
