// Package apt answers: how does this Debian or Ubuntu machine get a program that it lacks?
//
// As root, or where sudo asks for no password, packages are installed by apt-get, kept from starting services of their
// own. Anyone else gets them unpacked into a private directory, without the system noticing: apt-get
// downloads with its own state and cache, dpkg-deb unpacks, and the programs run with LD_LIBRARY_PATH.
package apt

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

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

//go:embed install.sh
var installScript string

// ErrNoWay says that none of the ways works here; the caller says what to type.
var ErrNoWay = errors.New("the packages cannot be installed from here")

const (
	installWithin = 10 * time.Minute
	stopWithin    = 10 * time.Second
)

// Ensure installs the packages, or unpacks them below tools/root. It tells say what it is about to do. It returns
// ErrNoWay, with the reason, when no way works; it takes ten minutes at most.
func Ensure(ctx context.Context, tools string, say func(string), packages ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: there is no apt-get", ErrNoWay)
	}
	var err error
	switch {
	case os.Geteuid() == 0:
		say("installing " + strings.Join(packages, ", ") + " with apt-get")
		err = run(ctx, nil, "/bin/sh", append([]string{"-c", installScript, "install"}, packages...)...)
	case run(ctx, nil, "sudo", "-n", "true") == nil:
		say("installing " + strings.Join(packages, ", ") + " with sudo apt-get")
		err = run(ctx, nil, "sudo", append([]string{"-n", "/bin/sh", "-c", installScript, "install"}, packages...)...)
	default:
		say("unpacking " + strings.Join(packages, ", ") + " into " + tools + " (no root needed)")
		err = unpack(ctx, tools, packages)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWay, err)
	}
	return nil
}

// unpack downloads the packages with what they depend on and this machine lacks, and unpacks them below tools/root.
func unpack(ctx context.Context, tools string, packages []string) error {
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
	if err := run(ctx, quiet, "apt-get", append(options, "update")...); err != nil {
		return err
	}
	download := append(options, "install", "--yes", "--download-only", "--no-install-recommends")
	if err := run(ctx, quiet, "apt-get", append(download, packages...)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(cache, "archives", "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := run(ctx, nil, "dpkg-deb", "--extract", archive, filepath.Join(tools, "root")); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(tools, "apt")) // the next call begins with fresh lists anyway
}

// run is bounded by ctx and reports a failure by the line of the program's output that names its cause.
func run(ctx context.Context, extra []string, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), extra...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	// A group of its own, asked to end rather than killed: the script takes its temporary files away.
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
