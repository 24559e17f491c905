package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A Fault is a change to the product's source that removes a protection or adds a point of failure. It exists in one
// build of one test: the compiler reads a changed copy of the file (go build -overlay). No release contains it.
type Fault struct {
	File string // path within the repository
	Old  string // occurs exactly once
	New  string
}

// Faulty returns the files that the faults change, by path, with the faults applied. A fault that does not match the
// source fails the test.
func Faulty(t testing.TB, faults ...Fault) map[string]string {
	t.Helper()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	texts := map[string]string{}
	for _, fault := range faults {
		path := filepath.Join(root, fault.File)
		if _, known := texts[path]; !known {
			content, err := os.ReadFile(path)
			must(t, err)
			texts[path] = string(content)
		}
		if count := strings.Count(texts[path], fault.Old); count != 1 {
			t.Errorf("%s contains this %d times, want 1; update the fault:\n%s", fault.File, count, fault.Old)
		}
		texts[path] = strings.Replace(texts[path], fault.Old, fault.New, 1)
	}
	if t.Failed() {
		t.FailNow()
	}
	return texts
}

// Broken builds the services with faults and returns the directory of their binaries.
func Broken(t testing.TB, faults ...Fault) string {
	t.Helper()
	texts := Faulty(t, faults...)
	root, err := localstore.RepositoryRoot()
	must(t, err)
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Ext(path))
		must(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	binaries := filepath.Join(dir, "bin")
	changed, same := changedServices(faults)
	// Without debugging information the linker takes half the time.
	must(t, stack.Build(ctx, root, binaries, changed, "-overlay="+file, "-ldflags=-w"))
	for _, service := range same {
		must(t, os.Symlink(Program(t, service), filepath.Join(binaries, service)))
	}
	return binaries
}

// changedServices returns the services that faults may change, and those that they do not.
func changedServices(faults []Fault) (changed, same []string) {
	for _, service := range stack.Services() {
		concerns := func(f Fault) bool {
			module, _, _ := strings.Cut(f.File, "/")
			return module == service || !slices.Contains(stack.Services(), module)
		}
		if slices.ContainsFunc(faults, concerns) {
			changed = append(changed, service)
		} else {
			same = append(same, service)
		}
	}
	return changed, same
}

// RunAgainst runs tests of this test binary against other binaries of the services, with scaled rounds (Rounds). It
// returns their output and whether they passed. Settings have the form NAME=value.
func RunAgainst(t testing.TB, binaries, tests string, scale int, settings ...string) (output string, passed bool) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	arguments := []string{"-test.run=" + tests, "-test.timeout=40m", "-scale=" + strconv.Itoa(scale)}
	command := exec.CommandContext(t.Context(), self, arguments...)
	home, err := preparedHome()
	must(t, err)
	command.Env = append(append(os.Environ(), binariesVariable+"="+binaries, homeVariable+"="+home), settings...)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// previousRelease is the commit of the last release that was installed. Its schema is older than the newest migrations.
const previousRelease = "0cfcdfceca13daaa21b244cb62d9e932ccd72816"

// PreviousRelease returns the commit from which installations are upgraded: the one that ALMONER_UPGRADE_FROM names, or
// the last release that was installed.
func PreviousRelease() string { return cmp.Or(os.Getenv("ALMONER_UPGRADE_FROM"), previousRelease) }

// Earlier builds both services at a commit and returns the directory of their binaries. The test is skipped if the
// commit or one of its dependencies is not available: in a copy without history, or without a network.
func Earlier(t testing.TB, commit string) string {
	t.Helper()
	source, binaries := CommittedFolder(t, commit, "."), t.TempDir()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./authserver/cmd/authserver",
		"./resourceapi/cmd/resourceapi")
	list.Dir, list.Env = source, append(os.Environ(), "GOTOOLCHAIN=local", "GOFLAGS=")
	if out, err := list.CombinedOutput(); err != nil {
		t.Skipf("the dependencies of commit %.10s are not available: %.300s", commit, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	must(t, stack.Build(ctx, source, binaries, stack.Services()))
	return binaries
}

// CommittedFolder writes a folder of the repository at a commit to a directory, which it returns. The test is skipped
// if the commit is not available.
func CommittedFolder(t testing.TB, commit, folder string) string {
	t.Helper()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	known := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}")
	if out, err := known.CombinedOutput(); err != nil {
		t.Skipf("the commit %.10s is not in this copy: %s", commit, out)
	}
	dir := t.TempDir()
	archive := filepath.Join(t.TempDir(), "folder.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, commit, folder},
		{"tar", "-x", "-C", dir, "-f", archive},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command[0], err, out)
		}
	}
	return filepath.Join(dir, folder)
}
