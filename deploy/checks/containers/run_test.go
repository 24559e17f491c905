package containers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/net/version"
)

const uid = 65532 // the images' user

// command returns a command that runs the image's program in the image's root directory, as the image's user.
func (i image) command(t *testing.T, environ []string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, i.entrypoint[0], append(i.entrypoint[1:], arguments...)...)
	command.Dir, command.Env = "/", append([]string{}, environ...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		return command
	}
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
	command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getegid(), Size: 1}}
	return command
}

// output is the result of a command that has ended.
type output struct {
	code           int
	stdout, stderr string
}

func (i image) run(t *testing.T, environ []string, arguments ...string) output {
	t.Helper()
	command := i.command(t, environ, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if errors.Is(err, syscall.EPERM) ||
		errors.Is(err, syscall.ENOSPC) { // no right to chroot; no user namespaces at all
		t.Skip("this needs root, or user namespaces: " + err.Error())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestImage_ProgramRunsWithoutOtherFiles(t *testing.T) {
	for _, service := range services() {
		i := assemble(t, service)
		got := i.run(t, nil, "--version")
		if got.code != 0 || !strings.HasPrefix(got.stdout, service+" "+version.Number+", commit "+commit+", go1.") ||
			got.stderr != "" {
			t.Errorf("%s --version: %+v", service, got)
		}
		// Refusals are one line, without the trace of a panic.
		for _, c := range []struct {
			arguments, says string
			environ         []string
		}{
			{"check-config", "ALMONER_BASE_URL is not set", nil},
			{"serve", "ALMONER_BASE_URL is not set", nil},
			{"migrate", "ALMONER_DATABASE_URL is not set", nil},
			{"healthcheck", "no response from 127.0.0.1:1", []string{"ALMONER_LISTEN=127.0.0.1:1"}},
			{"healthcheck 127.0.0.1:1", "no response from 127.0.0.1:1", []string{"ALMONER_LISTEN=:9"}},
		} {
			got := i.run(t, c.environ, strings.Fields(c.arguments)...)
			if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, c.says) ||
				strings.Contains(got.stderr, "goroutine") {
				t.Errorf("%s %s: %+v", service, c.arguments, got)
			}
		}
	}
}
