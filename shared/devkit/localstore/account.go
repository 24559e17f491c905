package localstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

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
