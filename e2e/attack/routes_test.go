package attack

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// An operation is a method and a path of the API in the OpenAPI description. TestO1_RoutesAreThoseDescribed of both
// services checks that the description is complete.
type operation struct{ method, path string }

// described returns the operations of the OpenAPI description, as JSON.
func described(t *testing.T, p *harness.Product) map[operation][]byte {
	t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	must(t, json.Unmarshal(p.API().Get(t, "/v1/openapi.json").Wants(t, http.StatusOK).Body, &document))
	out := map[operation][]byte{}
	for path, methods := range document.Paths {
		for method, content := range methods {
			if slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				out[operation{strings.ToUpper(method), path}] = content
			}
		}
	}
	return out
}

// operationsOnThings returns the operations that take an identifier, in the path or in the tenant header.
func operationsOnThings(t *testing.T, p *harness.Product) []operation {
	t.Helper()
	var out []operation
	for op, content := range described(t, p) {
		if strings.Contains(op.path, "{") || strings.Contains(string(content), "X-Tenant-Id") ||
			strings.Contains(string(content), "/parameters/Tenant") {
			out = append(out, op)
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d operations are in the OpenAPI description", len(out))
	}
	return out
}

// pageRoute is a path with its handlers by method; settingsRoute is a row of the table of the settings: a path, its
// section, the page and the form.
var (
	pageRoute     = regexp.MustCompile(`(?:"(/[^"]*)"|(mail\.\w+))[:,]\s+(?:methods)?\{([^{}]*)\}`)
	settingsRoute = regexp.MustCompile(`\{"(/settings/[^"]*)", \w+, (.+), (.+)\},\n`)
)

// named are the paths that the routes take from constants.
var named = map[string]string{"mail.ResetPath": "/login/reset", "mail.EmailChangePath": "/email"}

// pagesAndForms returns the paths of pages and forms by method, read from the source of authserver's routes.
func pagesAndForms(t *testing.T) (opened, sent []string) {
	t.Helper()
	source := func(name, after string) string {
		content, err := os.ReadFile(filepath.Join("..", "..", "authserver", "internal", name))
		must(t, err)
		_, text, found := strings.Cut(string(content), after)
		if !found {
			t.Fatalf("%s has no %s", name, after)
		}
		return text
	}
	add := func(path string, opens, sends bool) {
		if opens {
			opened = append(opened, path)
		}
		if sends {
			sent = append(sent, path)
		}
	}
	add("/", true, false)
	add("/settings", true, false)
	routes := source("app/routes.go", ") pageRoutes(") + source("endpoint/signin/signin.go", ") Routes(") +
		source("endpoint/signin/passkey.go", ") passkeyRoutes(") +
		source("endpoint/signin/upstream.go", ") providerRoutes(")
	for _, route := range pageRoute.FindAllStringSubmatch(routes, -1) {
		path := cmp.Or(route[1], named[route[2]], route[2]) // a name that is not known fails the tests of the routes
		add(path, strings.Contains(route[3], `"GET":`), strings.Contains(route[3], `"POST":`))
	}
	settings := source("endpoint/settings/settings.go", ") Routes(")
	for _, route := range settingsRoute.FindAllStringSubmatch(settings, -1) {
		add(route[1], route[2] != "nil", route[3] != "nil")
	}
	slices.Sort(opened)
	slices.Sort(sent)
	opened, sent = slices.Compact(opened), slices.Compact(sent)
	if len(opened) < 40 || len(sent) < 50 {
		t.Fatalf("only %d pages and %d forms are read from the routes", len(opened), len(sent))
	}
	return opened, sent
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

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)

// testsOfTheRepository returns the tests and fuzz targets of every package, as folder.Name.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	for _, module := range []string{"authserver", "resourceapi", "shared", "deploy", "e2e"} {
		root, err := filepath.Abs(filepath.Join("..", "..", module))
		must(t, err)
		err = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for _, name := range testFunction.FindAllSubmatch(content, -1) {
				exists[filepath.Base(filepath.Dir(path))+"."+string(name[1])] = true
			}
			return err
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
