package main

import (
	"bytes"
	"cmp"
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
// test fails for. It adds their number to EVIDENCE.md. folder is the package's, in the repository. testFolders,
// separated by commas, are further packages of the module whose tests run.
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
	for _, one := range tested {
		found, _ := filepath.Glob(filepath.Join(root, one, "*_test.go"))
		if len(found) == 0 || !strings.HasPrefix(one, module+"/") {
			return fmt.Errorf("%s is no folder of %s with tests", one, module)
		}
	}
	if err := copyModule(ctx, root, module, tested, filepath.Join(root, copied)); err != nil {
		return err
	}
	flags := "GOFLAGS=-trimpath -vet=off -mod=mod -modfile=" + file
	within := strings.TrimPrefix(folder, module+"/")
	arguments := []string{"unleash", "./" + within, "--workers=1", "--timeout-coefficient=" + patience}
	if testFolders != "" {
		arguments = append(arguments, "--integration", "--coverpkg=./"+within) // all tests of the copy
	}
	var out bytes.Buffer
	var lua string
	began := time.Now()
	if err := t.withServers(ctx, func() {
		t.out = io.MultiWriter(t.out, &out)
		t.step(ctx, "mutants of "+folder, copied, []string{"GOWORK=off", flags}, filepath.Join(t.bin, "gremlins"),
			arguments...)
		lua, err = t.mutateLua(ctx, copied, within, "GOWORK=off", flags)
	}); err != nil {
		return err
	}
	result := figures.FindString(out.String())
	if err != nil || result == "" {
		return t.result(cmp.Or(err, errors.New("gremlins reported no result")))
	}
	result += lua
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

// luaChanges are the changes of Lua scripts: what is replaced, and by what. A line of a script that writes is also
// removed.
var luaChanges = [][2]string{
	{" == ", " ~= "}, {" ~= ", " == "}, {" < ", " <= "}, {" <= ", " < "}, {" > ", " >= "}, {" >= ", " > "},
	{" and ", " or "}, {" or ", " and "}, {"not ", ""}, {" + ", " - "}, {" - ", " + "}, {"true", "false"},
}

var luaWrite = regexp.MustCompile(`^\s*redis\.call\('[A-Z]+'.*\)$`)

// mutateLua changes the Lua scripts of a package in one place at a time, runs all tests of the copied module each time,
// and returns the figures: "" if the package has no scripts.
func (t *testRun) mutateLua(ctx context.Context, module, within string, env ...string) (string, error) {
	root := filepath.Join(t.root, module)
	files, err := filepath.Glob(filepath.Join(root, within, "lua", "*.lua"))
	if err != nil || len(files) == 0 {
		return "", err
	}
	test := func() error {
		return t.command(ctx, module, env, io.Discard, "go", "test", "-count=1", "-failfast",
			"-timeout="+luaTestsWithin, "./...").Run()
	}
	if err := test(); err != nil {
		return "", fmt.Errorf("the tests fail before a script is changed: %w", err)
	}
	killed, lived := 0, 0
	for _, file := range files {
		original, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		lines := strings.Split(string(original), "\n")
		for i, line := range lines {
			for _, changed := range changesOf(line) {
				mutant := slices.Concat(lines[:i], []string{changed}, lines[i+1:])
				if err := os.WriteFile(file, []byte(strings.Join(mutant, "\n")), 0o600); err != nil {
					return "", err
				}
				switch err := test(); {
				case ctx.Err() != nil:
					return "", ctx.Err()
				case err != nil:
					killed++
				default:
					lived++
					t.say(fmt.Sprintf("LIVED %s:%d: %s", filepath.Base(file), i+1, strings.TrimSpace(changed)))
				}
			}
		}
		if err := os.WriteFile(file, original, 0o600); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("; Lua: killed: %d, lived: %d", killed, lived), nil
}

// luaTestsWithin is the time limit of the tests with a changed script, which may never end.
const luaTestsWithin = "5m"

// changesOf returns the changed forms of a line of a Lua script.
func changesOf(line string) []string {
	code, comment, commented := strings.Cut(line, "--")
	if commented {
		comment = "--" + comment
	}
	var all []string
	for _, change := range luaChanges {
		for at := 0; ; {
			found := strings.Index(code[at:], change[0])
			if found < 0 {
				break
			}
			at += found
			all = append(all, code[:at]+change[1]+code[at+len(change[0]):]+comment)
			at += len(change[0])
		}
	}
	if luaWrite.MatchString(code) {
		all = append(all, comment)
	}
	return all
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
