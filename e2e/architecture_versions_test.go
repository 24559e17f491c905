package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// Each module of the workspace has, by its own go.mod and go.sum, everything that its packages and tests import, in the
// versions that the workspace selects. The tests run in the workspace and the container images are built without it, so
// otherwise what is shipped is not what is tested.
func TestArchitecture_ModulesSelectTestedVersions(t *testing.T) {
	t.Parallel()
	var patterns []string
	for _, module := range modules() {
		patterns = append(patterns, "./"+module+"/...")
	}
	tested, err := dependencies(t, "..", nil, patterns...)
	must(t, err)
	for _, module := range modules() {
		own, err := dependencies(t, filepath.Join("..", module), withoutWorkspace(), "./...")
		if err != nil {
			t.Errorf("versions of %s: %v", module, err)
			continue
		}
		for _, wrong := range otherVersions(own, tested) {
			t.Errorf("versions of %s: %v", module, wrong)
		}
	}
}

func withoutWorkspace() []string { return []string{"GOWORK=off"} }

// A wrongVersion is a dependency that a module selects in another version than the workspace.
type wrongVersion struct{ path, own, tested string }

func (w wrongVersion) Error() string {
	return fmt.Sprintf("%s is %s without the workspace and %s in it: run GOWORK=off go get %s@%s in the module", w.path,
		w.own, w.tested, w.path, w.tested)
}

// otherVersions returns the dependencies that have another version in own than in tested.
func otherVersions(own, tested map[string]string) []wrongVersion {
	var wrong []wrongVersion
	for _, path := range slices.Sorted(maps.Keys(own)) {
		if version, known := tested[path]; known && version != own[path] {
			wrong = append(wrong, wrongVersion{path: path, own: own[path], tested: version})
		}
	}
	return wrong
}

// dependencies returns the versions of the modules that packages and their tests depend on, without those of the
// repository.
func dependencies(t *testing.T, folder string, extra []string, packages ...string) (map[string]string, error) {
	t.Helper()
	const format = `-f={{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}`
	arguments := append([]string{"list", "-deps", "-test", format}, packages...)
	list := exec.CommandContext(t.Context(), "go", arguments...)
	list.Dir = folder
	flags := append([]string{"-mod=readonly"}, stack.Flags()...) // those of what is shipped
	list.Env = append(os.Environ(), "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOFLAGS="+strings.Join(flags, " "))
	list.Env = append(list.Env, extra...)
	var complaints bytes.Buffer
	list.Stderr = &complaints
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &complaints)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, found := strings.Cut(strings.TrimSpace(line), " "); found {
			versions[path] = version
		}
	}
	return versions, nil
}

func TestArchitecture_OtherVersionsAreThoseOfCommonDependencies(t *testing.T) {
	t.Parallel()
	own := map[string]string{"a": "v1.0.0", "b": "v1.1.0", "c": "v1.0.0"}
	tested := map[string]string{"a": "v1.0.0", "b": "v1.2.0", "d": "v1.0.0"}
	wrong := otherVersions(own, tested)
	if len(wrong) != 1 || wrong[0] != (wrongVersion{path: "b", own: "v1.1.0", tested: "v1.2.0"}) {
		t.Errorf("%v", wrong)
	}
}

// A module whose go.mod lacks a dependency builds in the workspace, and not in a container image.
func TestArchitecture_IncompleteModuleFails(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.work":    "go 1.26.0\nuse (\n\t./one\n\t./two\n)\n",
		"one/go.mod": "module example.org/one\n\ngo 1.26.0\n",
		"one/one.go": "package one\n\nimport _ \"example.org/two\"\n",
		"two/go.mod": "module example.org/two\n\ngo 1.26.0\n",
		"two/two.go": "package two\n",
	} {
		path := filepath.Join(root, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)))
	}
	one := filepath.Join(root, "one")
	versions, err := dependencies(t, one, nil, "./...")
	if err != nil || len(versions) > 0 {
		t.Errorf("in the workspace: %v, %v", versions, err)
	}
	if _, err := dependencies(t, one, withoutWorkspace(), "./..."); err == nil {
		t.Error("the incomplete module is accepted without the workspace")
	}
}
