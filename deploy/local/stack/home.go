package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A home is the directory in which an installation stores its persistent data.
type home struct {
	dir    string
	stores string // directory of PostgreSQL and Redis; dir itself if their user can reach it
	seed   demo.Seed
	lock   *os.File
}

// openHome creates the directory at the first start and locks it against a second stack.
func openHome(dir string) (*home, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	if err := h.make(); err != nil {
		return nil, err
	}
	if err := h.acquire(); err != nil {
		return nil, err
	}
	if h.seed, err = demo.LoadSeed(h.path("seed")); err == nil {
		h.stores, err = h.findStores()
	}
	if err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

func (h *home) logFile(service string) string { return filepath.Join(h.dir, "log", service+".log") }

func (h *home) make() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the stores run as another user, who may enter but not list it
	}
	if info, err := os.Stat(h.dir); err == nil && os.Geteuid() == 0 && ownerOf(info) != 0 {
		return fmt.Errorf("%s belongs to another user (id %d): run this as that user", h.dir, ownerOf(info))
	}
	err := os.MkdirAll(h.path("log"), 0o700)
	if err == nil {
		err = os.Chmod(h.dir, mode) // regardless of the umask
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s is not writable (was it created by root?): %w", h.dir, err)
	}
	return err
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid } // as on every Linux

// acquire locks the directory for this process. The kernel releases the lock when the process ends.
func (h *home) acquire() error {
	file, err := os.OpenFile(h.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock %s: %w", h.dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(h.path("lock")) // only a hint
		_ = file.Close()
		return fmt.Errorf("another almoner is running in %s (process %s): stop it first", h.dir,
			strings.TrimSpace(string(holder)))
	}
	h.lock = file
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", h.dir, err)
	}
	_, err = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return err
}

// release unlocks the directory. Closing the file alone would not: a process that is being started, but does not run
// its own program yet, still has the file open.
func (h *home) release() {
	_ = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_UN)
	_ = h.lock.Close()
}

// findStores returns the stores' data directory: the home, or, if only root can enter that, another directory whose
// path is stored in the home.
func (h *home) findStores() (string, error) {
	note := h.path("stores")
	content, err := os.ReadFile(note)
	if elsewhere := strings.TrimSpace(string(content)); err == nil && elsewhere != "" {
		return elsewhere, ownDirectory(elsewhere)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if localstore.Reachable(h.dir) {
		return h.dir, nil
	}
	for _, parent := range []string{"/var/lib", "/var/tmp", "/tmp"} {
		dir := filepath.Join(parent, "almoner-"+h.seed.Fingerprint())
		if !localstore.Reachable(parent) || ownDirectory(dir) != nil {
			continue
		}
		return dir, os.WriteFile(note, []byte(dir+"\n"), 0o600)
	}
	return "", fmt.Errorf(
		"PostgreSQL must run as an unprivileged user, which cannot access %s, /var/lib, /var/tmp or /tmp", h.dir)
}

// ownDirectory creates a directory that other users may enter, or checks that an existing one belongs to this user.
func ownDirectory(dir string) error {
	err := os.Mkdir(dir, 0o711)
	if err == nil {
		return os.Chmod(dir, 0o711)
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || ownerOf(info) != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory that belongs to this user", dir)
	}
	return nil
}
