package attack

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// An operation is a method and a path of the API in the OpenAPI description. TestO1_RoutesAreThoseDescribed of both
// services checks that the description is complete.
type operation struct{ method, path string }

// operationsOnThings returns the operations that take an identifier, in the path or in the tenant header.
func operationsOnThings(t *testing.T, p *harness.Product) []operation {
	t.Helper()
	type item struct {
		Parameters []struct {
			Ref  string `json:"$ref"`
			Name string `json:"name"`
		} `json:"parameters"`
	}
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must(t, json.Unmarshal(p.API().Get(t, "/v1/openapi.json").Wants(t, 200).Body, &described))
	var out []operation
	for path, methods := range described.Paths {
		for method, content := range methods {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			var one item
			must(t, json.Unmarshal(content, &one))
			inHeader := strings.Contains(string(content), "X-Tenant-Id") ||
				strings.Contains(string(content), "/parameters/Tenant")
			if strings.Contains(path, "{") || inHeader {
				out = append(out, operation{strings.ToUpper(method), path})
			}
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d operations are in the OpenAPI description", len(out))
	}
	return out
}

// pagesAndForms returns the paths of pages and forms by method, read from the source of authserver's routes.
func pagesAndForms(t *testing.T) (opened, sent []string) {
	t.Helper()
	found := map[string]map[string]bool{"GET": {}, "POST": {}}
	service := filepath.Join("..", "..", "authserver", "internal")
	for _, name := range []string{
		"app/routes.go", "endpoint/signin/signin.go", "endpoint/signin/passkey.go", "endpoint/signin/upstream.go",
	} {
		path := filepath.Join(service, name)
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		functions := []string{"pageRoutes", "Routes", "passkeyRoutes", "providerRoutes"}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && slices.Contains(functions, f.Name.Name) {
				readRoutes(f.Body, found)
			}
		}
	}
	readSettings(t, found)
	opened, sent = slices.Sorted(maps.Keys(found["GET"])), slices.Sorted(maps.Keys(found["POST"]))
	if len(opened) < 12 || len(sent) < 15 {
		t.Fatalf("only %d pages and %d forms are read from the routes", len(opened), len(sent))
	}
	return opened, sent
}

// settingsRoute is a row of the table of the settings: a path, its section, the page and the form.
var settingsRoute = regexp.MustCompile(`\{"(/settings/[^"]*)", \w+, (.+), (.+)\},\n`)

// readSettings finds the routes of the settings.
func readSettings(t *testing.T, found map[string]map[string]bool) {
	t.Helper()
	table := filepath.Join("..", "..", "authserver", "internal", "endpoint", "settings", "settings.go")
	content, err := os.ReadFile(table)
	must(t, err)
	routes := settingsRoute.FindAllSubmatch(content, -1)
	if len(routes) < 50 {
		t.Fatalf("%d routes of the settings", len(routes))
	}
	for _, route := range routes {
		for i, method := range []string{"GET", "POST"} {
			if string(route[2+i]) != "nil" {
				found[method][string(route[1])] = true
			}
		}
	}
	found["GET"]["/"], found["GET"]["/settings"] = true, true
}

// readRoutes finds the three forms in which routes are written: route(path, methods{…}); path: {method: …} in a table;
// and a loop that calls route over a table from path to handler.
func readRoutes(body *ast.BlockStmt, found map[string]map[string]bool) {
	add := func(path string, methods ...string) {
		for _, method := range methods {
			found[method][path] = true
		}
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.RangeStmt:
			table, isTable := n.X.(*ast.CompositeLit)
			if !isTable {
				return true
			}
			for _, element := range table.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if path, ok := pathOf(pair.Key); ok {
						add(path, methodsIn(n.Body)...)
					}
				}
			}
			return false
		case *ast.CallExpr:
			name, isName := n.Fun.(*ast.Ident)
			if !isName || len(n.Args) < 2 {
				return true
			}
			path, isPath := pathOf(n.Args[0])
			if isPath && name.Name == "route" {
				add(path, methodsIn(n.Args[1])...)
			}
		case *ast.KeyValueExpr:
			if path, isPath := pathOf(n.Key); isPath {
				add(path, methodsIn(n.Value)...)
			}
		}
		return true
	})
}

// named are the paths that the routes take from constants.
var named = map[string]string{"mail.ResetPath": "/login/reset", "mail.EmailChangePath": "/email"}

func pathOf(e ast.Expr) (string, bool) {
	if constant, ok := e.(*ast.SelectorExpr); ok {
		name := types.ExprString(constant)
		return cmp.Or(named[name], name), true // a name that is not known fails the tests of the routes
	}
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil && strings.HasPrefix(text, "/")
}

func methodsIn(node ast.Node) []string {
	var out []string
	ast.Inspect(node, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && (literal.Value == `"GET"` || literal.Value == `"POST"`) {
			out = append(out, strings.Trim(literal.Value, `"`))
		}
		return true
	})
	return out
}

// TestREADME_NamesATestForEachAttack checks that every test that README.md names exists, that every row names one, and
// that README.md names every test of this folder.
func TestREADME_NamesATestForEachAttack(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("README.md")
	must(t, err)
	exists, named, rows := testsOfTheRepository(t), map[string]bool{}, 0
	for line := range strings.Lines(string(content)) {
		names := regexp.MustCompile("`((?:\\w+\\.)?(?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(line, -1)
		for _, name := range names {
			named[strings.TrimPrefix(name[1], "attack.")] = true
		}
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "| tests |") {
			rows++
			if len(names) == 0 {
				t.Errorf("no test for: %s", line)
			}
		}
	}
	if rows < 60 {
		t.Errorf("only %d rows were read", rows)
	}
	for name := range named {
		key := name
		if !strings.Contains(name, ".") {
			key = "attack." + name
		}
		if !exists[key] {
			t.Errorf("there is no %s", key)
		}
	}
	for key := range exists {
		if name, here := strings.CutPrefix(key, "attack."); here && !named[name] && name != "TestMain" {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

// testsOfTheRepository returns the tests and fuzz targets of every package, as folder.Name.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	for _, module := range []string{"authserver", "resourceapi", "shared", "deploy", "e2e"} {
		err := filepath.WalkDir(filepath.Join("..", "..", module), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			absolute, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				f, isFunc := declaration.(*ast.FuncDecl)
				if isFunc && f.Recv == nil &&
					(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
					exists[filepath.Base(filepath.Dir(absolute))+"."+f.Name.Name] = true
				}
			}
			return nil
		})
		must(t, err)
	}
	return exists
}

// fixedIn holds the first version of each library without a known vulnerability, or "" for a library that must not be
// used.
var fixedIn = map[string]string{
	"github.com/go-jose/go-jose/v3": "v3.0.4",
	"github.com/jackc/pgx/v5":       "v5.9.2",
	"github.com/redis/go-redis/v9":  "v9.7.3",
	"golang.org/x/crypto":           "v0.45.0",
	"golang.org/x/net":              "v0.45.0",
	"github.com/go-jose/go-jose/v4": "v4.1.4",
	"github.com/gorilla/csrf":       "",
	"github.com/dgrijalva/jwt-go":   "",
	"github.com/square/go-jose":     "",
	"gopkg.in/square/go-jose.v2":    "",
}

// TestLibraries_IncludeSecurityFixes reads the versions of the modules from the programs.
func TestLibraries_IncludeSecurityFixes(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, service := range stack.Services() {
		info, err := buildinfo.ReadFile(harness.Program(t, service))
		must(t, err)
		for _, module := range info.Deps {
			least, known := fixedIn[module.Path]
			if !known {
				continue
			}
			seen++
			if least == "" || slices.Compare(numbers(t, module.Version), numbers(t, least)) < 0 {
				t.Errorf("%s is built with %s %s, which is vulnerable", service, module.Path, module.Version)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d of these libraries are built in", seen)
	}
}

// numbers returns the numbers of a version such as v1.2.3.
func numbers(t *testing.T, version string) []int {
	t.Helper()
	numbers := make([]int, 3)
	_, err := fmt.Sscanf(version, "v%d.%d.%d", &numbers[0], &numbers[1], &numbers[2])
	must(t, err)
	return numbers
}
