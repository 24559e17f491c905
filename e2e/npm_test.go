package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeMajor returns the major version of the installed Node. The test is skipped without Node and npm.
func nodeMajor(t *testing.T) int {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Skip("Node is not installed")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Skipf("node --version printed no version: %s", version)
	}
	return n
}

// packagesOf installs the packages of a folder with a package.json and a lock file, and returns the directory of
// node_modules. They stay in the user's cache, and nothing writes to them there. The test is skipped if they cannot be
// loaded.
func packagesOf(t *testing.T, folder string) string {
	t.Helper()
	once, _ := installations.LoadOrStore(folder, sync.OnceValues(func() (string, error) { return install(folder) }))
	dir, err := once.(func() (string, error))()
	if errors.Is(err, errNotLoaded) {
		t.Skip(err)
	}
	must(t, err)
	return dir
}

// installations are the results of install in this process, by folder.
var installations sync.Map

var errNotLoaded = errors.New("the packages could not be loaded")

const (
	installWithin = 10 * time.Minute
	unusedFor     = 14 * 24 * time.Hour // after which an installation is removed
	installing    = "installing-"       // begins the name of one that is not complete
)

// install returns the directory of an installation of the folder's lock file for this machine. It is complete: it gets
// its name when npm has ended.
func install(folder string) (string, error) {
	home, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home = filepath.Join(home, "almoner", "npm")
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, runtime.GOOS, runtime.GOARCH) // never returns an error
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			return "", err
		}
		_, _ = digest.Write(files[name])
	}
	installed := filepath.Join(home, hex.EncodeToString(digest.Sum(nil))[:16])
	now := time.Now()
	if os.Chtimes(installed, now, now) == nil {
		return installed, nil
	}
	if err := errors.Join(os.MkdirAll(home, 0o755), removeUnused(home)); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(home, installing)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	if err := load(dir); err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	if err := os.Rename(dir, installed); err != nil {
		if _, missing := os.Stat(installed); missing != nil { // and no other process has installed it meanwhile
			return "", err
		}
	}
	return installed, nil
}

// load runs npm in a directory.
func load(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	command := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	command.Dir, command.WaitDelay = dir, time.Second
	out, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if bytes.Contains(out, []byte("can only install")) || bytes.Contains(out, []byte("EINTEGRITY")) {
		return fmt.Errorf("the lock file does not match package.json:\n%s", out)
	}
	return fmt.Errorf("%w: %w", errNotLoaded, err)
}

// removeUnused removes the installations that no test has used for a long time, and those that were cut off.
func removeUnused(home string) error {
	entries, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		limit := unusedFor
		if strings.HasPrefix(entry.Name(), installing) {
			limit = 2 * installWithin
		}
		info, err := entry.Info()
		if err == nil && time.Since(info.ModTime()) > limit {
			_ = os.RemoveAll(filepath.Join(home, entry.Name())) // or another process does
		}
	}
	return nil
}

// nodeAtLeast returns a Node of at least a major version: the installed one, or one from an npm package.
func nodeAtLeast(t *testing.T, major int, folder string) string {
	t.Helper()
	if nodeMajor(t) >= major {
		return "node"
	}
	architecture := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(packagesOf(t, folder), "node_modules", "node-linux-"+architecture, "bin", "node")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("Node %d or newer is needed, and there is no package for this machine", major)
	}
	return program
}
