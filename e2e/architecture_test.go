package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The layout of the code: imports point down and never sideways, each library is imported only in its room, and the
// domain does no I/O. The tables are in architecture_rules_test.go.

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

// packages returns every package of the repository. It lists them once, because that takes seconds.
var packages = testkit.Once(func(t testing.TB) (all []goPackage) {
	arguments := []string{"list", "-json=ImportPath,Dir,Doc,Imports,TestImports,XTestImports,GoFiles"}
	for _, module := range modules() {
		arguments = append(arguments, "./"+module+"/...")
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = ".."
	out, err := command.Output()
	must(t, err)
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var listed struct {
			goPackage
			TestImports, XTestImports []string
		}
		must(t, decoder.Decode(&listed))
		one := listed.goPackage
		one.ImportPath, one.Imports = short(one.ImportPath), shorten(one.Imports)
		one.Tests = shorten(append(listed.TestImports, listed.XTestImports...))
		all = append(all, one)
	}
	return all
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
			for _, declaration := range parseFile(t, filepath.Join(p.Dir, name)).Decls {
				if f, isFunc := declaration.(*ast.FuncDecl); isFunc && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s/%s has an init()", p.ImportPath, name)
				}
			}
		}
	}
}

const contributing = "../.github/CONTRIBUTING.md"

// A row is one row of the packages. Imports point down.
type row struct {
	name     string
	patterns []string
}

// rows returns the rows of both services and of what they share, from the top.
func rows() []row {
	return []row{
		{"programs", []string{"authserver/cmd/...", "resourceapi/cmd/..."}},
		{"composition", []string{"*/internal/app"}},
		{"the operator's commands", []string{
			"authserver/internal/admin", "authserver/internal/backup", "authserver/internal/doctor",
		}},
		{"HTTP", []string{"*/internal/endpoint/...", "resourceapi/internal/gate/..."}},
		{"protocol", []string{"authserver/internal/oauth/..."}},
		{"sign-in", []string{"authserver/internal/signin/..."}},
		{"accounts and mail", []string{"authserver/internal/account/...", "authserver/internal/mail"}},
		{"stores", []string{"*/internal/store/..."}},
		{"everything else of a service", []string{"authserver/...", "resourceapi/..."}},
		{"shared", []string{"shared/..."}},
		{forTests, append(supportForTests(), "shared/devkit/...")},
	}
}

const forTests = "for tests"

var packageTable = regexp.MustCompile(`(?s)(<!-- packages: .*? -->\n\n).*?\n\n`)

// CONTRIBUTING lists each package in its row, with the first sentence of its comment.
// ALMONER_WRITE_PACKAGES=1 writes the list.
func TestArchitecture_ContributingListsPackages(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| row | package | what it does |\n|---|---|---|")
	all := packages(t)
	listed := map[string]bool{}
	for _, r := range rows() {
		name := r.name
		for _, p := range all {
			isForTests := matches(p.ImportPath, rows()[len(rows())-1].patterns)
			if listed[p.ImportPath] || isForTests != (r.name == forTests) || !matches(p.ImportPath, r.patterns) {
				continue
			}
			listed[p.ImportPath] = true
			fmt.Fprintf(&table, "\n| %s | `%s` | %s |", name, p.ImportPath, summary(p))
			name = ""
		}
	}
	content := fileContent(t, contributing)
	if !packageTable.Match(content) {
		t.Fatal("CONTRIBUTING has no place for the packages")
	}
	want := packageTable.ReplaceAll(content, []byte("${1}"+strings.ReplaceAll(table.String(), "$", "$$")+"\n\n"))
	if slices.Equal(content, want) {
		return
	}
	if os.Getenv("ALMONER_WRITE_PACKAGES") == "" {
		t.Fatal("CONTRIBUTING lists other packages; ALMONER_WRITE_PACKAGES=1 writes the list")
	}
	must(t, os.WriteFile(contributing, want, 0o644))
}

var packageName = regexp.MustCompile(`^(Package|Command) \S+ |\.$`)

// summary returns what the comment of a package says that it does.
func summary(p goPackage) string {
	return strings.ReplaceAll(packageName.ReplaceAllString(p.Doc, ""), "|", `\|`)
}

// otherEncoders are the files below the endpoints that encode JSON themselves, with the destination of that JSON.
func otherEncoders() map[string]string {
	const authserver, resourceapi = "authserver/internal/endpoint/", "resourceapi/internal/endpoint/"
	return map[string]string{
		"shared/net/web/web.go":                  "the only writer of responses",
		authserver + "settings/request.go":       "into a sealed form key",
		authserver + "signin/password.go":        "into a sealed sign-in ticket",
		authserver + "settings/authenticator.go": "into the sealed setup of an app, and recovery codes",
		resourceapi + "publicforms/field.go":     "to the domain, as the answers that a script would send",
	}
}

// json.Marshal and json.NewEncoder write six bytes for each <, > and &, so a caller could make a response six times
// as long as its input. Package web writes JSON without this escaping.
func TestArchitecture_OnlyWebEncodesJSON(t *testing.T) {
	t.Parallel()
	known := otherEncoders()
	for _, one := range packages(t) {
		if !strings.Contains(one.ImportPath, "/internal/endpoint") && one.ImportPath != "shared/net/web" &&
			one.ImportPath != "shared/contract/apierr" && one.ImportPath != "shared/rest" {
			continue
		}
		for _, name := range one.GoFiles {
			file := one.ImportPath + "/" + name
			encodes := encodesJSON(t, filepath.Join(one.Dir, name))
			if _, allowed := known[file]; encodes && !allowed {
				t.Errorf("%s uses encoding/json to encode: use package web", file)
			} else if allowed && !encodes {
				t.Errorf("%s no longer encodes JSON", file)
			}
			delete(known, file)
		}
	}
	for file := range known {
		t.Errorf("%s no longer exists", file)
	}
}

func parseFile(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must(t, err)
	return file
}

func encodesJSON(t *testing.T, path string) (found bool) {
	t.Helper()
	ast.Inspect(parseFile(t, path), func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == "json" {
				switch selector.Sel.Name {
				case "Marshal", "MarshalIndent", "NewEncoder":
					found = true
				}
			}
		}
		return true
	})
	return found
}

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
		own, err := dependencies(t, filepath.Join("..", module), []string{"GOWORK=off"}, "./...")
		if err != nil {
			t.Errorf("versions of %s: %v", module, err)
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(own)) {
			if version, known := tested[path]; known && version != own[path] {
				t.Errorf("%s is %s in %s and %s in the workspace: run GOWORK=off go get %s@%s in the module", path,
					own[path], module, version, path, version)
			}
		}
	}
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
