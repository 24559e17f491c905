package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOtherVersions_ComparesCommonDependencies(t *testing.T) {
	own := map[string]string{"a": "v1.0.0", "b": "v1.1.0", "c": "v1.0.0"}
	tested := map[string]string{"a": "v1.0.0", "b": "v1.2.0", "d": "v1.0.0"}
	wrong := otherVersions(own, tested)
	if len(wrong) != 1 || wrong[0] != (wrongVersion{path: "b", own: "v1.1.0", tested: "v1.2.0"}) {
		t.Errorf("%v", wrong)
	}
}

// A module whose go.mod lacks a dependency builds in the workspace, and not in a container image.
func TestDependencies_IncompleteModuleFails(t *testing.T) {
	run := newTestRun(t.TempDir())
	for name, content := range map[string]string{
		"go.work":    "go 1.26.0\nuse (\n\t./one\n\t./two\n)\n",
		"one/go.mod": "module example.org/one\n\ngo 1.26.0\n",
		"one/one.go": "package one\n\nimport _ \"example.org/two\"\n",
		"two/go.mod": "module example.org/two\n\ngo 1.26.0\n",
		"two/two.go": "package two\n",
	} {
		path := filepath.Join(run.root, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	versions, err := run.dependencies(t.Context(), "one", nil, "./...")
	if err != nil || len(versions) > 0 {
		t.Errorf("in the workspace: %v, %v", versions, err)
	}
	if _, err := run.dependencies(t.Context(), "one", ownDependencies(), "./..."); err == nil {
		t.Error("the incomplete module is accepted without the workspace")
	}
}
