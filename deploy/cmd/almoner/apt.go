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
	"strings"
	"syscall"
	"time"

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
