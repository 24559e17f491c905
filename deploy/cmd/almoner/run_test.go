package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// running is `almoner run` in its own process group, as in a terminal.
type running struct {
	command *exec.Cmd
	home    string
	port    int
	lines   chan string
	ended   chan error
}

// directory is where TestMain builds the program that is tested.
var directory string

func TestMain(m *testing.M) {
	var err error
	if directory, err = os.MkdirTemp("", "almoner-program-"); err != nil {
		log.Fatal(err)
	}
	status := m.Run()
	_ = os.RemoveAll(directory)
	os.Exit(status)
}

// built builds the program, and the services as it does, so that no start has to compile them within its time limit. If
// `make test` has built the services, they need not be linked again.
var built = sync.OnceValues(func() ([]byte, error) {
	root, err := localstore.RepositoryRoot()
	bin := filepath.Join(directory, "bin")
	err = errors.Join(err, copyDir(os.Getenv("ALMONER_TEST_BINARIES"), bin))
	for _, service := range stack.Services() {
		err = errors.Join(err, stack.BuildModule(context.Background(), root, bin, service))
	}
	if err != nil {
		return nil, err
	}
	return exec.Command("go", "build", "-o", directory, ".").CombinedOutput()
})

// program returns the program that is tested.
func program(t *testing.T) string {
	t.Helper()
	if out, err := built(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(directory, "almoner")
}

func newHome(t *testing.T) string {
	t.Helper()
	home, err := localstore.TempDir("almoner-run-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	return home
}

// usedHome returns a home in which the services are built: that of an earlier start, if `make test` provides one.
func usedHome(t *testing.T) string {
	t.Helper()
	home := newHome(t)
	must(t, copyDir(os.Getenv("ALMONER_TEST_HOME"), home))
	program(t)
	must(t, copyDir(filepath.Join(directory, "bin"), filepath.Join(home, "bin")))
	return home
}

// copyDir copies the files of a directory, if it has a name.
func copyDir(from, to string) error {
	if from == "" {
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

var must = testkit.Must

// startRun starts the program in a home.
func startRun(t *testing.T, home string) *running {
	t.Helper()
	almoner := program(t)
	port, err := localstore.FreePorts(3)
	must(t, err)
	r := &running{home: home, port: port, lines: make(chan string, 1000), ended: make(chan error, 1)}
	r.command = exec.Command(almoner, "run")
	r.command.Env = append(os.Environ(), "ALMONER_HOME="+home, fmt.Sprint("PORT=", r.port), "MAKELEVEL=",
		"ALMONER_DATABASE_URL=", "ALMONER_REDIS_URL=")
	r.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := r.command.StdoutPipe()
	must(t, err)
	r.command.Stderr = r.command.Stdout
	must(t, r.command.Start())
	go func() {
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			r.lines <- scanner.Text()
		}
		close(r.lines)
		r.ended <- r.command.Wait()
	}()
	t.Cleanup(func() { _ = r.command.Process.Kill() })
	r.waitFor(t, "built the services")
	r.waitFor(t, "Almoner is running.")
	return r
}

func (r *running) waitFor(t *testing.T, text string) string {
	t.Helper()
	var all []string
	timeout := time.After(await.Long)
	for {
		select {
		case line, open := <-r.lines:
			if !open {
				t.Fatalf("the process ended without printing %q: %q", text, all)
			}
			if strings.Contains(line, text) {
				return line
			}
			all = append(all, line)
		case <-timeout:
			t.Fatalf("the process did not print %q: %q", text, all)
		}
	}
}

// end waits for the end of the process and returns the last line and the exit code.
func (r *running) end(t *testing.T) (string, int) {
	t.Helper()
	last := ""
	timeout := time.After(await.Long)
	for {
		select {
		case line, open := <-r.lines:
			if open {
				last = line
				continue
			}
			err := <-r.ended
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			return last, r.command.ProcessState.ExitCode()
		case <-timeout:
			t.Fatal("the process does not end")
		}
	}
}

// expectNothingLeft waits until no process is left, and reports those that remain.
func (r *running) expectNothingLeft(t *testing.T) {
	t.Helper()
	await.NoError(t, func() error {
		if left := r.processes(); len(left) > 0 {
			return fmt.Errorf("left running: %q", left)
		}
		return nil
	})
}

func (r *running) processes() []string {
	var found []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range entries {
		command, _ := os.ReadFile(process + "/cmdline")
		workDir, _ := os.Readlink(process + "/cwd")
		if strings.HasPrefix(workDir, r.home) || strings.Contains(string(command), r.home) {
			found = append(found, filepath.Base(process)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func TestRun_CtrlCStopsEverything(t *testing.T) {
	r := startRun(t, newHome(t)) // an empty home, in which it builds the services
	for _, text := range []string{"/v1/docs", "Tideway Community Trust is the workspace to try", "/v1/me -H"} {
		r.waitFor(t, text)
	}
	if len(r.processes()) < 5 { // two services, PostgreSQL with its own processes, Redis
		t.Fatalf("only %q run", r.processes())
	}
	// A terminal sends the signal to the whole foreground group.
	must(t, syscall.Kill(-r.command.Process.Pid, syscall.SIGINT))
	if last, code := r.end(t); code != 0 || !strings.Contains(last, "stopped") {
		t.Errorf("exit code %d, %q", code, last)
	}
	r.expectNothingLeft(t)
	log, err := os.ReadFile(filepath.Join(r.home, "postgres", "postgres.log"))
	if err != nil && os.Geteuid() != 0 {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "immediate shutdown") || !strings.Contains(string(log), "fast shutdown") {
		t.Errorf("PostgreSQL was not stopped in order: %s", log)
	}
}

func TestRun_KillLeavesNoProcess(t *testing.T) {
	r := startRun(t, usedHome(t))
	must(t, r.command.Process.Kill())
	r.end(t)
	r.expectNothingLeft(t)
}

func TestRun_DeadServiceStopsTheRest(t *testing.T) {
	r := startRun(t, usedHome(t))
	for _, process := range r.processes() {
		if pid, command, _ := strings.Cut(process, " "); strings.Contains(command, "bin/resourceapi") {
			must(t, exec.Command("kill", "-9", pid).Run())
		}
	}
	if last, code := r.end(t); code == 0 || !strings.Contains(last, "resourceapi ended") {
		t.Errorf("exit code %d, %q", code, last)
	}
	r.expectNothingLeft(t)
}

// The program and the services are built with the same flags, so that what they have in common is compiled once.
func TestRun_MakefileHasFlagsOfServices(t *testing.T) {
	content, err := os.ReadFile("../../../Makefile")
	must(t, err)
	build := "CGO_ENABLED=0 go build " + strings.Join(stack.Flags(), " ") + " "
	if !strings.Contains(string(content), build) {
		t.Errorf("the Makefile does not build the program with %s", build)
	}
}

func TestRun_InvalidPortIsOneLine(t *testing.T) {
	home := newHome(t) // reachable: otherwise the stores' directory is created elsewhere
	t.Setenv("ALMONER_HOME", home)
	t.Setenv("MAKELEVEL", "")
	for value, want := range map[string]string{
		"abc":   "PORT must be a whole number",
		"0":     "PORT must be a number above 0",
		"65535": "must be between",
	} {
		t.Setenv("PORT", value)
		if err := run(t.Context(), "/nowhere"); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("PORT=%s: %v", value, err)
		}
	}
}

// TestRun_MalformedStoreURLIsNamed (F25) checks that the error for an unreadable URL names its setting and the expected
// form, and does not quote the URL.
func TestRun_MalformedStoreURLIsNamed(t *testing.T) {
	home := newHome(t)
	t.Setenv("ALMONER_HOME", home)
	const postgres, redis = "postgres://user:password@127.0.0.1:5432/name", "redis://:password@127.0.0.1:6379/0"
	for _, c := range []struct{ setting, value, form string }{
		{"ALMONER_DATABASE_URL", "hidden", postgres},
		{"ALMONER_DATABASE_URL", "host=127.0.0.1 password=hidden", postgres},
		{"ALMONER_DATABASE_URL", "postgres://u:hidden@127.0.0.1:port/x", postgres},
		{"ALMONER_REDIS_URL", "hidden", redis},
		{"ALMONER_REDIS_URL", "http://:hidden@127.0.0.1:6379", redis},
	} {
		t.Setenv("ALMONER_DATABASE_URL", "")
		t.Setenv("ALMONER_REDIS_URL", "")
		t.Setenv(c.setting, c.value)
		if err := run(t.Context(), "/nowhere"); err == nil || err.Error() != c.setting+" must look like "+c.form {
			t.Errorf("%s: %v", c.value, err)
		}
	}
}
