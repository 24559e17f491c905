package localstore

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

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
