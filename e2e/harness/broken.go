package harness

import (
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
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, fault := range faults {
		path := filepath.Join(root, fault.File)
		if _, known := texts[path]; !known {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
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
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Ext(path))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	binaries := filepath.Join(dir, "bin")
	changed, same := changedServices(faults)
	// Without debugging information the linker takes half the time.
	if err := stack.BuildSome(ctx, root, binaries, changed, "-overlay="+file, "-ldflags=-w"); err != nil {
		t.Fatal(err)
	}
	for _, service := range same {
		if err := os.Symlink(Program(t, service), filepath.Join(binaries, service)); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"-test.run=" + tests, "-test.timeout=40m", "-scale=" + strconv.Itoa(scale)}
	command := exec.CommandContext(t.Context(), self, arguments...)
	home, err := preparedHome()
	if err != nil {
		t.Fatal(err)
	}
	command.Env = append(append(os.Environ(), binariesVariable+"="+binaries, homeVariable+"="+home), settings...)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}
