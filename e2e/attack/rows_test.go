package attack

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestREADME_NamesATestForEachAttack checks that every test that README.md names exists, that every row names one, and
// that README.md names every test of this folder.
func TestREADME_NamesATestForEachAttack(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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

func TestLibraries_IncludeSecurityFixes(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, service := range []string{"authserver", "resourceapi"} {
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
			"{{with .Module}}{{.Path}} {{.Version}}{{end}}", "./cmd/...")
		command.Dir = filepath.Join("..", "..", service)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", service, err)
		}
		for line := range strings.Lines(string(out)) {
			path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			least, known := fixedIn[path]
			if !known {
				continue
			}
			seen++
			if least == "" || olderThan(version, least) {
				t.Errorf("%s is built with %s %s, which has a known vulnerability", service, path, version)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d packages of these libraries are built in", seen)
	}
}

// olderThan compares versions such as v1.2.3 numerically.
func olderThan(version, least string) bool {
	numbers := func(text string) [3]int {
		var out [3]int
		for i, part := range strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3) {
			part, _, _ = strings.Cut(part, "-")
			out[i], _ = strconv.Atoi(part)
		}
		return out
	}
	have, want := numbers(version), numbers(least)
	for i := range have {
		if have[i] != want[i] {
			return have[i] < want[i]
		}
	}
	return false
}
