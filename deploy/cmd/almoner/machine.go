package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

//go:embed install.sh
var installScript string

// errCannotInstall reports that the packages cannot be installed. The caller tells the user what to do.
var errCannotInstall = errors.New("the packages cannot be installed")

const (
	installWithin = 10 * time.Minute
	stopWithin    = 10 * time.Second
)

// installPackages installs Debian packages, as root or with sudo without a password, and prevents them from starting
// services. Otherwise it unpacks them below tools/root without changing the system: apt-get downloads with its own
// state and cache, dpkg-deb unpacks, and the programs run with LD_LIBRARY_PATH. It passes each action to say first.
// It returns errCannotInstall with the reason if it fails, and takes up to ten minutes.
func installPackages(ctx context.Context, tools string, say func(string), packages ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: there is no apt-get", errCannotInstall)
	}
	var err error
	switch {
	case os.Geteuid() == 0:
		say("installing " + strings.Join(packages, ", ") + " with apt-get")
		err = runTool(ctx, nil, "/bin/sh", append([]string{"-c", installScript, "install"}, packages...)...)
	case runTool(ctx, nil, "sudo", "-n", "true") == nil:
		say("installing " + strings.Join(packages, ", ") + " with sudo apt-get")
		script := []string{"-n", "/bin/sh", "-c", installScript, "install"}
		err = runTool(ctx, nil, "sudo", append(script, packages...)...)
	default:
		say("unpacking " + strings.Join(packages, ", ") + " into " + tools + " (no root needed)")
		err = unpackPackages(ctx, tools, packages)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotInstall, err)
	}
	return nil
}

// unpackPackages downloads the packages with their missing dependencies and unpacks them below tools/root.
func unpackPackages(ctx context.Context, tools string, packages []string) error {
	state, cache := filepath.Join(tools, "apt", "state"), filepath.Join(tools, "apt", "cache")
	for _, dir := range []string{
		filepath.Join(state, "lists", "partial"),
		filepath.Join(cache, "archives", "partial"),
		filepath.Join(tools, "root"),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	options := []string{
		"-q", "-o", "Dir::State=" + state, "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "Dir::Cache=" + cache,
		"-o", "Debug::NoLocking=true", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20",
	}
	quiet := []string{"DEBIAN_FRONTEND=noninteractive"}
	if err := runTool(ctx, quiet, "apt-get", append(options, "update")...); err != nil {
		return err
	}
	download := append(options, "install", "--yes", "--download-only", "--no-install-recommends")
	if err := runTool(ctx, quiet, "apt-get", append(download, packages...)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(cache, "archives", "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := runTool(ctx, nil, "dpkg-deb", "--extract", archive, filepath.Join(tools, "root")); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(tools, "apt")) // the next call starts with fresh lists anyway
}

// runTool runs a program until ctx ends. A failure quotes the line of the output that names the cause.
func runTool(ctx context.Context, extra []string, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), extra...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	// A separate process group that gets SIGTERM instead of SIGKILL: the script removes its temporary files.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = stopWithin
	err := command.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", filepath.Base(program), ctx.Err())
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, child.Cause(out.String()))
}

// ensureStores installs the stores that are to be started and are missing.
func ensureStores(ctx context.Context, options stack.Options) error {
	missing, packages := missingStores(options)
	if len(missing) == 0 {
		return nil
	}
	err := installPackages(ctx, options.Tools, options.Progress, packages...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if still, _ := missingStores(options); len(still) > 0 {
		if err == nil {
			err = errors.New("this system's packages are too old, or in an unknown place")
		}
		return fmt.Errorf("%s: run sudo apt-get install %s, then try again (%w)", errors.Join(still...),
			strings.Join(packages, " "), err)
	}
	return nil
}

func missingStores(options stack.Options) (missing []error, packages []string) {
	if options.DatabaseURL == "" {
		if err := localstore.FindPostgres(options.Tools); err != nil {
			missing, packages = append(missing, err), append(packages, "postgresql")
		}
	}
	if options.RedisURL == "" {
		if err := localstore.FindRedis(options.Tools); err != nil {
			missing, packages = append(missing, err), append(packages, "redis-server")
		}
	}
	return missing, packages
}

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
