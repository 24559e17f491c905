package postgres

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestStatements_NameTheWorkspace checks the statements of this package. Each statement about records of workspaces
// must name the workspace, so that one node of a distributed database runs it.
func TestStatements_NameTheWorkspace(t *testing.T) {
	records := regexp.MustCompile(`resource\.(programmes|submissions|supporters|supporters_left|forms|imports|` +
		`idempotency_keys|list_locks)\s`)
	exempt := []string{
		"where f.embed_key = $1",                       // the key of a form is unique among all workspaces
		"resource.submissions s where s.id = $1",       // a status token of an earlier release
		"where id = $1 and status = 'accepted'",        // a job of an earlier release
		"where status = 'accepted' and created_at <= ", // the sweep
		"index concurrently", "analyze resource.",      // for the owner of the database
		"from resource.supporters_left t where t.since",   // part of statements that name it
		"select s.created_at as at from resource.forms f", // for operators
	}
	files := orFail(os.ReadDir("."))(t)
	found := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		parsed := orFail(parser.ParseFile(positions, file.Name(), nil, 0))(t)
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !records.MatchString(text+" ") || !strings.Contains(text, " ") {
				return true
			}
			found++
			for _, part := range exempt {
				if strings.Contains(text, part) {
					return true
				}
			}
			if !strings.Contains(text, "tenant_id") {
				t.Errorf("%s names no workspace: %s", positions.Position(literal.Pos()), text)
			}
			if strings.Contains(text, "ctid") {
				t.Errorf("%s reads ctid: %s", positions.Position(literal.Pos()), text)
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("%d statements were found", found)
	}
}
