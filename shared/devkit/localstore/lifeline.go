package localstore

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// RemoveAfterUs removes dir when this process is gone, however it ended: for test processes, which have no moment of
// their own for that. Servers started here end with us by themselves (package child); a shell notices that the
// returned lifeline was closed, by the kernel at the latest, and removes what they left. Keep the lifeline reachable.
func RemoveAfterUs(dir string) (lifeline io.Closer, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watch over %s: %w", dir, err)
	}
	defer func() { _ = reader.Close() }()
	// Servers that are still ending may write once more: try again.
	watcher := exec.Command("/bin/sh", "-c",
		`cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$0" 2>/dev/null && exit; sleep 0.3; done`, dir)
	watcher.Stdin = reader
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not end it before us
	if err := watcher.Start(); err != nil {
		_ = writer.Close()
		return nil, fmt.Errorf("watch over %s: %w", dir, err)
	}
	go func() { _ = watcher.Wait() }() // for a lifeline that is closed while we live
	return writer, nil
}
