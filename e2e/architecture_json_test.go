package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// otherEncoders are the files below the endpoints that encode JSON themselves, with the destination of that JSON.
func otherEncoders() map[string]string {
	const authserver, resourceapi = "authserver/internal/endpoint/", "resourceapi/internal/endpoint/"
	return map[string]string{
		"shared/net/web/web.go":             "the only writer of responses",
		authserver + "settings/request.go":  "into a sealed form key",
		authserver + "signin/password.go":   "into a sealed sign-in ticket",
		authserver + "settings/security.go": "into the sealed setup of an app",
		resourceapi + "publicforms/view.go": "to the domain, as the answers that a script would send",
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

func encodesJSON(t *testing.T, path string) (found bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(t, err)
	ast.Inspect(parsed, func(node ast.Node) bool {
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
