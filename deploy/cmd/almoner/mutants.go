package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
// test fails for. It adds their number to EVIDENCE.md. folder is the package's, in the repository. testFolders, separated
// by commas, are further packages of the module whose tests run.
func mutants(ctx context.Context, root, folder, testFolders string) error {
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
	copied := filepath.Join(".almoner", "mutants")
	tested := append(strings.FieldsFunc(testFolders, func(r rune) bool { return r == ',' }), folder)
	if err := copyModule(ctx, root, module, tested, filepath.Join(root, copied)); err != nil {
		return err
	}
	flags := "GOFLAGS=-trimpath -vet=off -mod=mod -modfile=" + file
	within := strings.TrimPrefix(folder, module+"/")
	var out bytes.Buffer
	began := time.Now()
	if err := t.withServers(ctx, func() {
		t.out = io.MultiWriter(t.out, &out)
		// gremlins changes another copy. It would run the tests of one package only; here no other has tests.
		t.step(ctx, "mutants of "+folder, copied, []string{"GOWORK=off", flags}, filepath.Join(t.bin, "gremlins"),
			"unleash", "./"+within, "--integration", "--coverpkg=./"+within, "--workers=1",
			"--timeout-coefficient="+patience)
	}); err != nil {
		return err
	}
	result := figures.FindString(out.String())
	if result == "" {
		return t.result(errors.New("gremlins reported no result"))
	}
	if testFolders != "" {
		result += ", with the tests of " + testFolders
	}
	return t.result(t.addEvidence(ctx, "mutants", folder+": "+result, began))
}

// copyModule copies the files of a module that git knows to a folder, without the tests of other packages than tested.
func copyModule(ctx context.Context, root, module string, tested []string, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", module)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the files of %s: %w", module, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		folder := filepath.Dir(name)
		if strings.HasSuffix(name, "_test.go") && !slices.Contains(tested, folder) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(name, module+"/"))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			return err
		}
	}
	return nil
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
