package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The layout of the code: imports point down and never sideways, each library is imported only in its room, and the
// domain does no I/O. The tables are in architecture_rooms_test.go and
// architecture_rules_test.go.

const repository = "github.com/almonerhq/almoner/"

// A goPackage is go list's description of a package. Paths in the repository are relative to it.
type goPackage struct {
	ImportPath string
	Dir        string
	Doc        string   // the first sentence of its comment
	Imports    []string // without tests
	Tests      []string // of the tests only
	GoFiles    []string
}

func modules() []string {
	return []string{"authserver", "resourceapi", "shared", "shared/client", "shared/devkit", "deploy", "e2e"}
}

// folders are the modules' top-level folders.
func folders() []string { return []string{"authserver", "resourceapi", "shared", "deploy", "e2e"} }

// packages returns every package of the repository.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := everyPackage()
	must(t, err)
	return all
}

// everyPackage lists them once, because that takes seconds.
var everyPackage = sync.OnceValues(func() (all []goPackage, err error) {
	arguments := []string{"list", "-json=ImportPath,Dir,Doc,Imports,TestImports,XTestImports,GoFiles"}
	for _, module := range modules() {
		arguments = append(arguments, "./"+module+"/...")
	}
	command := exec.CommandContext(context.Background(), "go", arguments...)
	command.Dir = ".."
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			goPackage
			TestImports, XTestImports []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		one := listed.goPackage
		one.ImportPath, one.Imports = short(one.ImportPath), shorten(one.Imports)
		one.Tests = shorten(append(listed.TestImports, listed.XTestImports...))
		all = append(all, one)
	}
})

func short(path string) string { return strings.TrimPrefix(path, repository) }

func shorten(paths []string) []string {
	out := make([]string, len(paths))
	for i, path := range paths {
		out[i] = short(path)
	}
	return out
}

// isOurs reports whether a shortened path is a package of the repository.
func isOurs(imported string) bool {
	return slices.Contains(folders(), strings.SplitN(imported, "/", 2)[0])
}

// isStandard reports whether an import is in Go's standard library: its first element has no dot.
func isStandard(imported string) bool {
	return !isOurs(imported) && !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
}

// matches reports whether a package matches one of the patterns: "*" stands for one path element, and a trailing
// "/..." includes everything below.
func matches(importPath string, patterns []string) bool {
	for _, pattern := range patterns {
		if below, all := strings.CutSuffix(pattern, "/..."); all {
			for prefix := importPath; prefix != "."; prefix = path.Dir(prefix) {
				if ok, _ := path.Match(below, prefix); ok {
					return true
				}
			}
		} else if ok, _ := path.Match(pattern, importPath); ok {
			return true
		}
	}
	return false
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	all := packages(t)
	if len(all) < 40 {
		t.Fatalf("go list returned only %d packages", len(all))
	}
	for _, complaint := range inspect(all) {
		t.Error(complaint)
	}
}

// inspect returns the violations in the packages.
func inspect(all []goPackage) []string {
	var complaints []string
	for _, p := range all {
		for _, imported := range p.Imports {
			if why := forbidden(p.ImportPath, imported); why != "" {
				complaints = append(complaints, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, why))
			}
		}
		for _, imported := range p.Tests {
			if why := crossesModules(p.ImportPath, imported); why != "" {
				complaints = append(complaints, fmt.Sprintf("a test of %s imports %s: %s", p.ImportPath, imported, why))
			}
		}
		if slices.Contains(vagueNames(), path.Base(p.ImportPath)) {
			complaints = append(complaints, p.ImportPath+": the name does not describe the content")
		}
	}
	return complaints
}

func forbidden(importer, imported string) string {
	for _, rule := range []func(importer, imported string) string{
		crossesModules, crossesWings, pointsUpOrSideways, doesIO, leavesItsRoom,
	} {
		if why := rule(importer, imported); why != "" {
			return why
		}
	}
	return ""
}

// No package has side effects on import.
func TestArchitecture_NoInitFunctions(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.SkipObjectResolution)
			must(t, err)
			for _, declaration := range file.Decls {
				if f, isFunc := declaration.(*ast.FuncDecl); isFunc && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s/%s has an init()", p.ImportPath, name)
				}
			}
		}
	}
}
