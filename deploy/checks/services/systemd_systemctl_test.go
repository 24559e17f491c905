package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/hashicorp/go-envparse"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

const (
	// systemctlVariable makes the test program be systemctl, in the namespaces of TestOneMachine_PageLeadsToSignIn.
	systemctlVariable = "ALMONER_TEST_SYSTEMCTL"

	logFolder   = "/run/log-of-units"
	dynamicUser = 61184 // systemd.exec(5), DynamicUser: 61184 to 65519
)

func TestMain(m *testing.M) {
	if os.Getenv(systemctlVariable) == "" {
		os.Exit(m.Run())
	}
	if err := systemctl(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "systemctl:", err)
		os.Exit(1)
	}
}

// systemctl runs units as their files say: their commands, users, environment and credentials, without their
// restrictions.
func systemctl(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == "daemon-reload" {
		return nil
	}
	for _, name := range arguments[1:] {
		if name == "--now" {
			continue
		}
		u, err := readUnit(name)
		if err == nil {
			err = u.start()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// A unitFile is a unit with its drop-ins.
type unitFile struct {
	service
	credentials string
	uid, gid    int
}

func readUnit(name string) (u unitFile, err error) {
	u.file, u.template = name, name+".service"
	if before, after, template := strings.Cut(name, "@"); template {
		u.instance, u.template = after, before+"@.service"
	}
	for _, folder := range []string{"/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"} {
		content, err := os.ReadFile(folder + u.template)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return u, err
		}
		dropIns, err := filepath.Glob("/etc/systemd/system/" + u.template + ".d/*.conf")
		if err != nil {
			return u, err
		}
		for _, file := range dropIns {
			more, err := os.ReadFile(file)
			if err != nil {
				return u, err
			}
			content = append(append(content, '\n'), more...)
		}
		u.options, err = unit.DeserializeOptions(bytes.NewReader(content))
		return u, err
	}
	return u, errors.New("there is no such unit")
}

func (u unitFile) start() error {
	if err := u.prepare(); err != nil {
		return err
	}
	environment, err := u.environment()
	if err != nil {
		return err
	}
	pidFile := filepath.Join(logFolder, u.file+".pid")
	if content, err := os.ReadFile(pidFile); err == nil {
		pid, _ := strconv.Atoi(string(content))
		_ = syscall.Kill(pid, syscall.SIGTERM)
		ctx, cancel := context.WithTimeout(context.Background(), await.Long)
		defer cancel()
		child.WaitGone(ctx, pid)
	}
	oneshot := strings.Join(u.values("Service", "Type"), "") == "oneshot"
	for _, line := range u.values("Service", "ExecStart") {
		command, err := u.command(line, environment)
		if err != nil {
			return err
		}
		if oneshot {
			if err := command.Run(); err != nil {
				return err
			}
			continue
		}
		ready, err := u.startNotifying(command)
		if err != nil {
			return err
		}
		if err := os.WriteFile(pidFile, []byte(strconv.Itoa(command.Process.Pid)), 0o600); err != nil {
			return err
		}
		if err := ready(); err != nil {
			return err
		}
	}
	for _, line := range u.values("Service", "ExecStartPost") {
		command, err := u.command(strings.TrimPrefix(line, "-"), environment)
		if err != nil {
			return err
		}
		if err := command.Run(); err != nil && !strings.HasPrefix(line, "-") {
			return err
		}
	}
	return nil
}

// startNotifying starts a command. If the unit has Type=notify, ready waits until the service says that it is ready
// (sd_notify(3)).
func (u unitFile) startNotifying(command *exec.Cmd) (ready func() error, err error) {
	if strings.Join(u.values("Service", "Type"), "") != "notify" {
		return func() error { return nil }, command.Start()
	}
	path := filepath.Join(logFolder, u.file+".notify")
	_ = os.Remove(path) // of an earlier start
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, err
	}
	command.Env = append(command.Env, "NOTIFY_SOCKET="+path)
	return func() error {
		defer func() { _ = socket.Close() }()
		if err := socket.SetReadDeadline(time.Now().Add(await.Long)); err != nil {
			return err
		}
		message := make([]byte, 4096)
		for {
			n, err := socket.Read(message)
			if err != nil || bytes.Contains(message[:n], []byte("READY=1")) {
				return err
			}
		}
	}, command.Start()
}

// prepare makes the unit's user, directories and credentials.
func (u *unitFile) prepare() error {
	if strings.Join(u.values("Service", "DynamicUser"), "") == "yes" {
		u.uid, u.gid = dynamicUser, dynamicUser
	} else {
		known, err := user.Lookup(strings.Join(u.values("Service", "User"), ""))
		if err != nil {
			return err
		}
		u.uid, _ = strconv.Atoi(known.Uid)
		u.gid, _ = strconv.Atoi(known.Gid)
	}
	u.credentials = "/run/credentials/" + u.file
	for _, folder := range []string{logFolder, u.credentials} {
		if err := os.MkdirAll(folder, 0o711); err != nil {
			return err
		}
	}
	for _, name := range u.values("Service", "RuntimeDirectory") {
		if err := os.MkdirAll("/run/"+name, 0o755); err != nil {
			return err
		}
		if err := os.Chown("/run/"+name, u.uid, u.gid); err != nil {
			return err
		}
	}
	for _, line := range u.values("Service", "LoadCredential") {
		name, file, _ := strings.Cut(line, ":")
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		loaded := filepath.Join(u.credentials, name)
		_ = os.Remove(loaded) // of an earlier start
		if err := os.WriteFile(loaded, content, 0o400); err != nil {
			return err
		}
		if err := os.Chown(loaded, u.uid, u.gid); err != nil {
			return err
		}
	}
	return nil
}

func (u unitFile) environment() ([]string, error) {
	all := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8"}
	if u.uid != dynamicUser {
		known, err := user.LookupId(strconv.Itoa(u.uid))
		if err != nil {
			return nil, err
		}
		all = append(all, "HOME="+known.HomeDir)
	}
	for _, line := range u.values("Service", "Environment") {
		for _, pair := range assignments(line) {
			all = append(all, strings.NewReplacer("%d", u.credentials, "%i", u.instance).Replace(pair))
		}
	}
	for _, file := range u.values("Service", "EnvironmentFile") {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		settings, err := envparse.Parse(bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		for name, value := range settings {
			all = append(all, name+"="+value)
		}
	}
	return all, nil
}

// command returns a command of the unit as its user, with its output in the unit's log.
func (u unitFile) command(line string, environment []string) (*exec.Cmd, error) {
	arguments := []string{"--reuid", strconv.Itoa(u.uid), "--regid", strconv.Itoa(u.gid), "--clear-groups"}
	if strings.Join(u.values("Service", "AmbientCapabilities"), "") == "CAP_NET_BIND_SERVICE" {
		arguments = append(arguments, "--inh-caps", "+net_bind_service", "--ambient-caps", "+net_bind_service")
	}
	command := exec.Command("setpriv", append(append(arguments, "--"), strings.Fields(line)...)...)
	log, err := os.OpenFile(filepath.Join(logFolder, u.file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	command.Env, command.Stdout, command.Stderr = environment, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Dir = "/"
	return command, nil
}
