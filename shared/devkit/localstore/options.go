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
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails (crypto/rand)
	text := hex.EncodeToString(secret)
	return text, writeWhole(path, text+"\n")
}

// writeWhole writes a private file atomically: a crash leaves the old content or the new.
func writeWhole(path, content string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// environment returns the environment of a server: a fixed locale, and the libraries of a private
// installation.
func environment(libraries []string) []string {
	environ := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TZ=UTC"}
	if len(libraries) > 0 {
		environ = append(environ, "LD_LIBRARY_PATH="+strings.Join(libraries, string(filepath.ListSeparator)))
	}
	return environ
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
var lifelines struct {
	sync.Mutex
	open []io.Closer
}

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
	lifelines.Lock()
	defer lifelines.Unlock()
	lifelines.open = append(lifelines.open, lifeline)
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
