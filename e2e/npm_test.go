package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// installWithin is the time limit for the installation of npm packages.
const installWithin = 10 * time.Minute

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
// node_modules. The packages are cached in the tools directory, if there is one.
func packagesOf(t *testing.T, folder string) string {
	t.Helper()
	digest := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		must(t, err)
		files[name] = content
		_, _ = digest.Write(content) // never returns an error
	}
	home := t.TempDir()
	if tools := os.Getenv("ALMONER_TEST_TOOLS"); tools != "" {
		home = filepath.Join(tools, "npm")
		must(t, os.MkdirAll(home, 0o755))
	}
	cached := filepath.Join(home, hex.EncodeToString(digest.Sum(nil))[:16])
	if _, err := os.Stat(cached); err == nil {
		return cached
	}
	dir, err := os.MkdirTemp(home, "installing-")
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), installWithin)
	defer cancel()
	command := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	command.Dir = dir
	command.WaitDelay = time.Second
	if out, err := command.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "can only install") || strings.Contains(string(out), "EINTEGRITY") {
			t.Fatalf("the lock file of %s does not match its package.json:\n%s", folder, out)
		}
		t.Skipf("the packages of %s could not be installed (%v)", folder, err)
	}
	if err := os.Rename(dir, cached); err != nil {
		if _, there := os.Stat(cached); there != nil { // and no other test has installed it meanwhile
			t.Fatal(err)
		}
	}
	return cached
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
