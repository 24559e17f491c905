package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// workspace returns the modules in go.work, dependencies first.
func workspace() []string {
	return []string{"shared", "shared/client", "shared/devkit", "deploy", "resourceapi", "authserver", endToEnd}
}

// outside returns the modules that are not in go.work, since their dependencies are their own.
func outside() []string { return []string{"deploy/checks", "deploy/release"} }

// endToEnd is the module whose tests start the services as processes of their own. They run without the race detector,
// which would not see the services.
const endToEnd = "e2e"

// ownDependencies is the environment for go in a module without the workspace.
func ownDependencies() []string { return []string{"GOWORK=off"} }

// patterns returns the package patterns of the modules in go.work, for go in the root of the repository.
func patterns(except ...string) []string {
	var all []string
	for _, name := range workspace() {
		if !slices.Contains(except, name) {
			all = append(all, "./"+name+"/...")
		}
	}
	return all
}

// A testRun is one run of `make test`. A failed step does not prevent later steps.
type testRun struct {
	root   string
	tools  string    // privately installed packages
	bin    string    // built services and checkers
	env    []string  // environment of every step
	failed []string  // each failed step, with the command that repeats it
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
	t = newTestRun(root)
	race, err = t.ensurePackages(ctx)
	return t, race, err
}

// result returns err, or an error that names the failed steps.
func (t *testRun) result(err error) error {
	if err == nil && len(t.failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(t.failed, "\nalmoner: failed: "))
	}
	return err
}

// test runs everything. The steps that take longest start first.
func test(ctx context.Context, root string) error {
	t, race, err := begin(ctx, root)
	if err != nil {
		return err
	}
	t.tempDir = tempDir
	if err := os.MkdirAll(t.bin, 0o755); err != nil {
		return err
	}
	err = t.withServers(ctx, func() {
		plain, raced, err1 := t.packages(ctx, race, "./authserver/...")
		others, othersRaced, err2 := t.packages(ctx, race, patterns("authserver", endToEnd)...)
		if err := errors.Join(err1, err2); err != nil {
			t.failed = append(t.failed, err.Error())
			return
		}
		t.sideBySide(ctx, testEndToEnd, testConcurrent(raced), testPlain(others), testPlain(plain), testOutside,
			checkStatically, testConcurrent(othersRaced))
	})
	if err := t.result(err); err != nil {
		return err
	}
	t.say("all checks and tests passed")
	return nil
}

// atOnce is how many steps run at once. Most tests wait for a store or a browser, so that three keep two processors at
// work.
const atOnce = 3

// sideBySide starts the steps in their order, atOnce of them or, with one processor, one at a time. The output of each
// follows when it ends.
func (t *testRun) sideBySide(ctx context.Context, steps ...func(ctx context.Context, t *testRun)) {
	t.say("the steps run side by side; the output of each follows when it ends")
	places := make(chan struct{}, min(atOnce, 2*runtime.NumCPU()-1))
	var ends sync.WaitGroup
	var ended sync.Mutex
	quiet := *t
	quiet.failed = nil
	for _, step := range steps {
		places <- struct{}{}
		ends.Go(func() {
			var out bytes.Buffer
			own := quiet
			own.out = &out
			step(ctx, &own)
			ended.Lock()
			defer ended.Unlock()
			_, _ = out.WriteTo(t.out)
			t.failed = append(t.failed, own.failed...)
			<-places
		})
	}
	ends.Wait()
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
	for _, service := range stack.Services() { // as `make run` builds them, whose tests then find them built
		if err := stack.BuildModule(ctx, t.root, t.bin, service); err != nil {
			return err
		}
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
	// The tests create their files in dir too. go keeps its own elsewhere: test programs are large.
	temporary := filepath.Join(dir, "tmp")
	t.env = append(t.env, "GOTMPDIR="+cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "TMPDIR="+temporary)
	if err := errors.Join(os.Mkdir(temporary, 0o755), os.Chmod(temporary, 0o777|os.ModeSticky)); err != nil {
		return err
	}
	run()
	return ctx.Err()
}

// testPlain runs the tests of packages without the race detector.
func testPlain(packages []string) func(context.Context, *testRun) {
	return func(ctx context.Context, t *testRun) {
		t.goTest(ctx, "of the packages", ".", nil, append(testsAtOnce(), packages...)...)
	}
}

// testConcurrent runs the tests of packages with the race detector, one package at a time.
func testConcurrent(packages []string) func(context.Context, *testRun) {
	return func(ctx context.Context, t *testRun) {
		if len(packages) > 0 {
			t.goTest(ctx, "with the race detector", ".", []string{"CGO_ENABLED=1"},
				append([]string{"-race", "-p=1"}, packages...)...)
		}
	}
}

// testOutside runs the tests of the modules that are not in go.work. They mostly wait for containers and for the disk.
func testOutside(ctx context.Context, t *testRun) {
	for _, name := range outside() {
		t.goTest(ctx, "in "+name, name, ownDependencies(), "./...")
	}
}

// testEndToEnd runs the tests of e2e, two packages at once, or one if there is one processor. More would slow down the
// services and browsers of a test until its requests time out. The packages that take longest start first, then
// runbooks, which mostly waits.
func testEndToEnd(ctx context.Context, t *testRun) {
	packages := []string{".", "./torture", "./runbooks", "./..."}
	atOnce := fmt.Sprintf("-p=%d", min(2, runtime.NumCPU()))
	// Without the build tags: browsers and gateways use HTTP/2, which the services' tags exclude.
	flags := "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=readonly -trimpath")
	t.goTest(ctx, "in "+endToEnd, endToEnd, []string{flags}, append([]string{atOnce}, packages...)...)
}

// goTest runs tests in a folder, and go vet on their packages. Test programs have no debugging information (-w), so
// that linking them is quicker.
func (t *testRun) goTest(ctx context.Context, which, folder string, extra []string, arguments ...string) {
	arguments = append([]string{"test", "-vet=all", "-ldflags=-w", "-timeout=" + testsWithin}, arguments...)
	t.step(ctx, "tests "+which, folder, extra, "go", arguments...)
}

// testsAtOnce returns the flags for the number of parallel packages and of parallel tests of a package. Most tests wait
// for a store, but with one processor more of them would slow down each other until they time out.
func testsAtOnce() []string {
	if runtime.NumCPU() == 1 {
		return []string{"-p=2", "-parallel=2"} // the steps run in turn
	}
	return []string{"-p=1", "-parallel=4"} // beside other steps
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
	var printed bytes.Buffer
	command := t.command(ctx, module, extra, io.MultiWriter(t.out, &printed), program, arguments...)
	err := command.Run()
	took := time.Since(began).Round(time.Second)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		commands := repeat(module, extra, program, arguments, printed.String())
		t.failed = append(t.failed, name+"; to repeat it:\n  "+strings.Join(commands, "\n  "))
		t.say(fmt.Sprintf("%s FAILED after %s: %v", name, took, err))
	case took > 0:
		processors := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
		t.say(fmt.Sprintf("%s: %s, with %s of processor time", name, took, processors.Round(time.Second)))
	}
}

// outcome matches the lines of go test that say which tests and packages failed or passed. The lines of a package's
// tests precede its own.
var outcome = regexp.MustCompile(`(?m)^(--- FAIL: |FAIL\t|ok  \t)(\S+)`)

// repeat returns the shell commands that repeat a failed step. Those of go test run only the failed tests.
func repeat(module string, extra []string, program string, arguments []string, printed string) []string {
	begin := "cd " + module + " && "
	for _, variable := range extra {
		name, value, _ := strings.Cut(variable, "=")
		begin += name + "='" + value + "' "
	}
	begin += program
	var commands, tests []string
	for _, line := range outcome.FindAllStringSubmatch(printed, -1) {
		switch line[1] {
		case "--- FAIL: ":
			tests = append(tests, line[2])
			continue
		case "FAIL\t":
			command := begin + " test"
			if slices.Contains(arguments, "-race") {
				command += " -race"
			}
			if len(tests) > 0 {
				command += " -run '^(" + strings.Join(tests, "|") + ")$'"
			}
			commands = append(commands, command+" "+line[2])
		}
		tests = nil
	}
	if len(commands) == 0 {
		commands = []string{begin + " " + strings.Join(arguments, " ")}
	}
	return commands
}

func (t *testRun) say(line string) { _, _ = fmt.Fprintln(t.out, "almoner: "+line) }

const (
	vulnerabilityDatabase = "https://vuln.go.dev/index/db.json"
	databaseAnswersWithin = 5 * time.Second
	scanWithin            = 3 * time.Minute
)

// checkStatically runs staticcheck on all modules, and govulncheck. The tests of e2e are further checks.
func checkStatically(ctx context.Context, t *testRun) {
	t.step(ctx, "build the checkers", "deploy/tools", ownDependencies(), "go", "build", "-o",
		t.bin+string(filepath.Separator), "honnef.co/go/tools/cmd/staticcheck", "golang.org/x/vuln/cmd/govulncheck")
	staticcheck := filepath.Join(t.bin, "staticcheck")
	t.step(ctx, "staticcheck", ".", nil, staticcheck, patterns()...)
	for _, name := range outside() {
		t.step(ctx, "staticcheck, "+name, name, ownDependencies(), staticcheck, "./...")
	}
	scanForVulnerabilities(ctx, t)
}

// scanForVulnerabilities reports known vulnerabilities in dependencies. It never fails the run, since its database
// changes without the code and is not reachable from everywhere.
func scanForVulnerabilities(ctx context.Context, t *testRun) {
	response, err := (&http.Client{Timeout: databaseAnswersWithin}).Head(vulnerabilityDatabase)
	if err == nil {
		_ = response.Body.Close()
	}
	if err != nil || response.StatusCode != http.StatusOK {
		t.say("govulncheck skipped: its database is not reachable")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	for _, service := range stack.Services() { // only these are deployed
		t.say("govulncheck, " + service)
		scan := t.command(ctx, service, nil, t.out, filepath.Join(t.bin, "govulncheck"), "./...")
		if err := scan.Run(); err != nil {
			t.say(fmt.Sprintf("WARNING: govulncheck, %s: %v", service, err))
		}
	}
}

// raceWorks reports whether a C program compiles, which the race detector needs.
func (t *testRun) raceWorks(ctx context.Context) bool {
	compiler := t.command(ctx, ".", nil, io.Discard, "gcc", "-x", "c", "-o", os.DevNull, "-")
	compiler.Stdin = strings.NewReader("#include <stdlib.h>\nint main(void) { return 0; }\n")
	return compiler.Run() == nil
}

// command returns a command that runs in a folder of the repository. When ctx ends, its process group is interrupted as
// by Ctrl-C.
func (t *testRun) command(
	ctx context.Context, folder string, extra []string, out io.Writer, program string, arguments ...string,
) *exec.Cmd {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = filepath.Join(t.root, folder)
	command.Env = append(append([]string{}, t.env...), extra...)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = 20 * time.Second
	return command
}

// packages returns the packages of the patterns, those first whose tests take longest. concurrent are those that
// share memory between goroutines and have quick tests or isRaced, if race. `make torture PART=detector` tests all
// packages with the race detector.
func (t *testRun) packages(ctx context.Context, race bool, of ...string) (plain, concurrent []string, err error) {
	var out bytes.Buffer
	list := t.command(ctx, ".", nil, &out, "go", append([]string{
		"list",
		"-f={{.ImportPath}} {{if or .TestGoFiles .XTestGoFiles}}{{join .Imports \" \"}}{{end}}",
	}, of...)...)
	if err := list.Run(); err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		takesLong := rank(path) != quick && !isRaced(path)
		if race && sharesMemory(strings.Fields(imports)) && !isTool(path) && !takesLong {
			concurrent = append(concurrent, path)
		} else {
			plain = append(plain, path)
		}
	}
	// go test starts the packages in this order.
	slices.SortStableFunc(plain, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return plain, concurrent, nil
}

// slowest returns the ends of the paths of packages whose tests take longest, those that take longest first. Most run a
// whole service, and would take three times as long with the race detector.
func slowest() []string {
	return []string{
		"/internal/app", "/internal/store/postgres", "/internal/oauth/grant", "/internal/endpoint/settings",
		"/internal/endpoint/protocol/token", "/devkit/localstore", "/internal/endpoint/api", "/internal/admin",
		"/internal/endpoint/protocol/authorize", "/cmd/almoner", "/internal/endpoint/signin",
		"/internal/signin/session", "/local/stack", "/config/redisurl", "/internal/endpoint/apidoc",
	}
}

// quick is the rank of packages whose tests do not take long.
const quick = math.MaxInt

// rank is lower for packages whose tests start first.
func rank(path string) int {
	i := slices.IndexFunc(slowest(), func(name string) bool { return strings.HasSuffix(path, name) })
	if i < 0 {
		return quick
	}
	return i
}

// isRaced reports whether a package is tested with the race detector although its tests take long.
func isRaced(path string) bool {
	return strings.HasSuffix(path, "/oauth/grant") || strings.HasSuffix(path, "/signin/session")
}

// isTool reports whether a package is not part of the services.
func isTool(path string) bool {
	return strings.Contains(path, "/deploy/") || strings.Contains(path, "/shared/devkit/")
}

func sharesMemory(imports []string) bool {
	return slices.ContainsFunc(imports, func(path string) bool {
		return path == "sync" || path == "sync/atomic" || strings.HasPrefix(path, "golang.org/x/sync/")
	})
}
