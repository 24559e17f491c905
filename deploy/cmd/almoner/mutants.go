package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// patience is how many times longer than the tests of the unchanged package those of a changed one may take.
const patience = "20"

// mutants changes the code of a package in one place at a time, runs its tests each time, and lists the changes that no
// test fails for. It adds their number to EVIDENCE.md. folder is the package's, in the repository. The tests of other
// packages do not run.
func mutants(ctx context.Context, root, folder string) error {
	folder = filepath.Clean(folder)
	modules := slices.DeleteFunc(workspace(), func(module string) bool {
		return !strings.HasPrefix(folder, module+"/")
	})
	if len(modules) == 0 {
		return errors.New("no folder of a module in go.work: use one, like make mutants PACKAGE=shared/contract/perm")
	}
	module := slices.MaxFunc(modules, func(a, b string) int { return len(a) - len(b) })
	t := newTestRun(root)
	if err := ensureStores(ctx, stack.Options{Tools: t.tools, Progress: t.say}); err != nil {
		return err
	}
	t.step(ctx, "build gremlins", "deploy/tools", ownDependencies(), "go", "build", "-o",
		t.bin+string(filepath.Separator), "github.com/go-gremlins/gremlins/cmd/gremlins")
	file, err := independent(root, module)
	if err != nil {
		return err
	}
	// gremlins changes a copy of the module elsewhere.
	flags := "GOFLAGS=-trimpath -mod=mod -modfile=" + file
	var out bytes.Buffer
	began := time.Now()
	if err := t.withServers(ctx, func() {
		t.out = io.MultiWriter(t.out, &out)
		t.step(ctx, "mutants of "+folder, module, []string{"GOWORK=off", flags}, filepath.Join(t.bin, "gremlins"),
			"unleash", "./"+strings.TrimPrefix(folder, module+"/"), "--workers=1", "--timeout-coefficient="+patience)
	}); err != nil {
		return err
	}
	result := figures.FindString(out.String())
	if result == "" {
		return t.result(errors.New("gremlins reported no result"))
	}
	return t.result(t.addEvidence(ctx, "mutants", folder+": "+result, began))
}

// figures are in gremlins' report.
var figures = regexp.MustCompile(`Killed: \d+, Lived: \d+, Not covered: \d+`)

var neighbour = regexp.MustCompile(`=> (\.\.?/\S*)`)

// independent writes the go.mod of a module, with the other modules of the repository at their absolute paths, and its
// go.sum, and returns the path of the first. A copy of the module builds with it.
func independent(root, module string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
	if err != nil {
		return "", err
	}
	text = neighbour.ReplaceAllFunc(text, func(found []byte) []byte {
		return []byte("=> " + filepath.Join(root, module, string(found[3:])))
	})
	file := filepath.Join(root, ".almoner", "mutants.mod")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	return file, os.WriteFile(strings.TrimSuffix(file, ".mod")+".sum", sums, 0o600)
}
