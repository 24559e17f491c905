package attack

import (
	"cmp"
	"encoding/json"
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
	if err := json.Unmarshal(p.API().Get(t, "/v1/openapi.json").Wants(t, 200).Body, &described); err != nil {
		t.Fatal(err)
	}
	var out []operation
	for path, methods := range described.Paths {
		for method, content := range methods {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			var one item
			if err := json.Unmarshal(content, &one); err != nil {
				t.Fatal(err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
