// Package localstore starts private PostgreSQL and Redis servers for `make run` and the tests.
//
// The servers listen on loopback, on free ports, with random passwords, and write only to one directory.
// Servers that already run on the machine are not touched, and no server outlives the program that started it
// (package child).
//
// PostgreSQL refuses to run as root. If this program is root, both servers run as an unprivileged user, who
// becomes the owner of the directory and must be able to reach it: see Reachable and TempDir.
package localstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options configures a server.
type Options struct {
	Dir   string // made if missing; its content survives a restart
	Tools string // where package apt unpacked programs; "" if they are installed

	// Volatile disables fsync, for faster tests. Acknowledged data survives the end of the server process, but not a
	// power failure.
	Volatile bool

	// Settings are further settings of PostgreSQL, such as wal_level=logical.
	Settings []string

	programs *programs // of PostgreSQL; nil to find them
	primary  *Postgres // the server is a replica of this one, with its version and superuser; nil for none
}

const (
	readyWithin = 4 * time.Minute // for servers that wait for each other
	stopWithin  = time.Minute
)

// keptSecret returns the secret in the file. It creates the file at the first call.
func keptSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(content))) > 0 {
		return strings.TrimSpace(string(content)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	secret := rand.Text()
	return secret, WriteWhole(path, secret+"\n")
}

// WriteWhole writes a private file atomically: a crash leaves the old content or the new.
func WriteWhole(path, content string) error {
	temporary := path + ".new"
	err := os.WriteFile(temporary, []byte(content), 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// environment returns the environment of a server: a fixed locale, and the libraries of a private
// installation.
func environment(libraries []string) []string {
	return append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TZ=UTC"}, libraryPath(libraries)...)
}

// libraryPath returns the environment that a program needs for libraries outside the system's path.
func libraryPath(libraries []string) []string {
	if len(libraries) == 0 {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, string(filepath.ListSeparator))}
}

// RepositoryRoot returns the closest directory at or above the working directory that holds go.work. Tests run in their
// package's directory.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("run this in the repository: there is no go.work here or in a directory above")
		}
	}
	return "", err
}

// lifelines holds the lifelines of ProcessDir's directories: the garbage collector closes one that is not referenced.
var lifelines sync.Map // directory → io.Closer

// ProcessDir makes a directory as TempDir does. The directory is removed when this process ends, even if it is killed.
func ProcessDir(pattern string) (string, error) {
	dir, err := TempDir(pattern)
	if err != nil {
		return "", err
	}
	lifeline, err := RemoveAfterUs(dir)
	if err != nil {
		return "", err
	}
	lifelines.Store(dir, lifeline)
	return dir, nil
}

// RemoveAfterUs removes dir when this process ends, in whatever way. It is for test processes, which cannot
// clean up when they are killed. Servers started by this package end with the process (package child); a
// shell notices when the returned lifeline is closed, at the latest by the kernel, and removes their files.
// The caller must keep the lifeline reachable.
func RemoveAfterUs(dir string) (lifeline io.Closer, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watch over %s: %w", dir, err)
	}
	defer func() { _ = reader.Close() }()
	// Servers that are still stopping may write files: retry.
	watcher := exec.Command("/bin/sh", "-c",
		`cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$0" 2>/dev/null && exit; sleep 0.3; done`, dir)
	watcher.Stdin = reader
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not end it before us
	if err := watcher.Start(); err != nil {
		_ = writer.Close()
		return nil, fmt.Errorf("watch over %s: %w", dir, err)
	}
	go func() { _ = watcher.Wait() }() // for a lifeline that is closed before this process ends
	return writer, nil
}

// serverAccount returns the account that runs the servers: nil for the current user, or an unprivileged user
// if the current user is root.
func serverAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("the account %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

// Reachable reports whether the servers' user can enter the directory. It cannot enter a directory below a
// root-only one such as /root.
func Reachable(dir string) bool {
	account, err := serverAccount()
	if err != nil {
		return false
	}
	// Starting a process is more reliable than reading permission bits: the kernel also applies access lists
	// and mount options.
	probe := exec.Command("/bin/true")
	probe.Dir = dir
	probe.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	return probe.Run() == nil
}

// TempDir makes a new directory that the servers' user can reach. The caller removes it.
func TempDir(pattern string) (string, error) {
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if !Reachable(parent) {
			continue
		}
		if dir, err := os.MkdirTemp(parent, pattern); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("there is no directory for temporary files that an unprivileged user can reach")
}

// settle makes dir, hands it over to the account, and checks that the account can enter it.
func settle(dir string, account *syscall.Credential) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if account == nil {
		return nil
	}
	if err := handOver(dir, account); err != nil {
		return err
	}
	if !Reachable(dir) {
		return fmt.Errorf(
			"%s cannot be reached by an unprivileged user, as which PostgreSQL must run: choose another directory",
			dir,
		)
	}
	return nil
}

// handOver gives a directory and its content to the account. It does nothing if account is nil.
func handOver(dir string, account *syscall.Credential) error {
	if account == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a server that is still stopping removes its files
			}
			return err
		}
		if err := os.Lchown(path, int(account.Uid), int(account.Gid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

const (
	lowestPort = 10000 // lower ports are well known
	portTries  = 100
	startTries = 3
)

// reserved maps each port that this process has reserved to an abstract Unix socket (unix(7)). In a network namespace,
// the kernel permits one socket per name and removes it when its process ends, so no two processes get the same port
// before their servers listen.
var reserved sync.Map

var errPortTaken = errors.New("the port was taken by another program")

// FreePort returns a port that is free at 127.0.0.1 and ::1. Until this process ends, no other call returns it, in any
// process of the network namespace, unless nearly all ports are for outgoing connections. It is outside the kernel's
// range for outgoing connections: a port in that range may be taken at any moment, and a client that keeps retrying a
// stopped server may even connect to itself, after which the server cannot start again.
func FreePort() (int, error) { return FreePorts(1) }

// FreePorts returns the first of count ports in a row that are free as FreePort's is.
func FreePorts(count int) (first int, err error) {
	end := outgoingPorts()
	if end < lowestPort+1000 {
		return kernelsChoice() // nearly all ports are for outgoing connections
	}
	for range portTries {
		first := lowestPort + mathrand.IntN(end-lowestPort-count)
		free := true
		for port := first; free && port < first+count; port++ {
			if free, err = reserve(port); err != nil {
				return 0, fmt.Errorf("find a free port: %w", err)
			}
		}
		if free {
			return first, nil
		}
	}
	return 0, errors.New("find a free port: there is none")
}

// reservation is the name of the socket that reserves a port. A name that begins with @ is abstract.
func reservation(port int) string { return "@almoner-port-" + strconv.Itoa(port) }

// reserve reserves a port until this process ends. It returns false if the port is in use or already reserved.
func reserve(port int) (bool, error) {
	socket, err := net.Listen("unix", reservation(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if CheckPort(port) != nil {
		return false, socket.Close()
	}
	reserved.Store(port, socket)
	return true, nil
}

// outgoingPorts returns the first port of the kernel's range for outgoing connections (ip(7)).
func outgoingPorts() int {
	begin := 32768 // the default
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(content), &begin)
	}
	return begin
}

// CheckPort returns an error unless the port is free at 127.0.0.1 and ::1: "localhost" is either, and another program
// at one of them would get some of the requests. If it is in use, the error is EADDRINUSE.
func CheckPort(port int) error {
	for _, host := range []string{"127.0.0.1", "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
		} else if host == "127.0.0.1" || errors.Is(err, syscall.EADDRINUSE) {
			return err
		} // else there is no IPv6
	}
	return nil
}

func kernelsChoice() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// onFreePort calls start with free ports until one was not taken by another program in the meantime.
func onFreePort(start func(port int) error) error {
	for try := 1; ; try++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
	}
}

// whyNotStarted returns errPortTaken if the end of the server's log says that the port is in use, and err otherwise.
func whyNotStarted(name, log string, err error) error {
	lines := readLines(log)
	if strings.Contains(strings.Join(lines[max(0, len(lines)-6):], "\n"), "Address already in use") {
		return fmt.Errorf("%s: %w", name, errPortTaken)
	}
	return err
}
