package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// versions checks that each module of the workspace, by its own go.mod and go.sum, has everything that its packages and
// tests import, in the versions that the workspace selects. The tests run in the workspace and the container images are
// built without it, so otherwise what is shipped is not what is tested.
func (t *testRun) versions(ctx context.Context) {
	t.say("versions of the modules")
	tested, err := t.dependencies(ctx, ".", nil, patterns()...)
	if err != nil {
		t.fail(ctx, "versions of the modules", err)
		return
	}
	for _, m := range modules() {
		if m.outside {
			continue
		}
		own, err := t.dependencies(ctx, m.name, ownDependencies(), "./...")
		if err != nil {
			t.fail(ctx, "versions of "+m.name, err)
			continue
		}
		for _, wrong := range otherVersions(own, tested) {
			t.fail(ctx, "versions of "+m.name, wrong)
		}
	}
}

// A wrongVersion is a dependency that a module selects in another version than the workspace.
type wrongVersion struct{ path, own, tested string }

func (w wrongVersion) Error() string {
	return fmt.Sprintf(
		"%s is %s without the workspace and %s in it: run GOWORK=off go get %s@%s in the module",
		w.path, w.own, w.tested, w.path, w.tested,
	)
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
func (t *testRun) dependencies(
	ctx context.Context,
	folder string,
	extra []string,
	packages ...string,
) (map[string]string, error) {
	const format = `-f={{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}`
	var out, complaints bytes.Buffer
	arguments := append([]string{"list", "-deps", "-test", format}, packages...)
	list := t.command(ctx, folder, extra, &out, "go", arguments...)
	list.Stderr = &complaints
	if err := list.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &complaints)
	}
	versions := map[string]string{}
	for line := range strings.Lines(out.String()) {
		if path, version, found := strings.Cut(strings.TrimSpace(line), " "); found {
			versions[path] = version
		}
	}
	return versions, nil
}
