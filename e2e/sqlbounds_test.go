package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Work that grows with what others wrote must have a bound, or a request fails for ever once there is enough of it.
// SQL_BOUNDS.md has the bound of each statement of which the text does not show one.

var (
	statementStart = regexp.MustCompile(`(?is)^\s*\(?\s*(with|select|update|delete from|insert into)\b`)
	// byKey finds a condition on a unique column.
	byKey = regexp.MustCompile(`\b(id|kid|token_id|email|key|[a-z_]*hash) = (\$\d|@[a-z]|any ?\()`)
	// withoutTable finds a statement without a table: it calls functions, or tests parameters.
	withoutTable = regexp.MustCompile(`^select [^…]*$`)
)

// showsBound reports whether the text of a statement shows that its work is bounded: by limit, by a key, by the values
// that it inserts, or since it reads no table.
func showsBound(sql string) bool {
	sql = strings.ToLower(sql)
	_, condition, _ := strings.Cut(sql, " where ")
	return strings.Contains(sql, "limit ") ||
		strings.HasPrefix(sql, "insert into") && strings.Contains(sql, "values") ||
		byKey.MatchString(condition) ||
		withoutTable.MatchString(sql) && !strings.Contains(sql, " from ")
}

// unboundedIn returns the names of the functions, constants and variables of a file that have a statement of which the
// text shows no bound, and the number of all statements.
func unboundedIn(t *testing.T, path string) (names []string, statements int) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must(t, err)
	inspect := func(name string, within ast.Node) {
		ast.Inspect(within, func(node ast.Node) bool {
			e, expression := node.(ast.Expr)
			if !expression {
				return true
			}
			text, literal := literalOf(e)
			if !literal {
				return true
			}
			if !statementStart.MatchString(text) || !statement.MatchString(text) {
				return false
			}
			statements++
			if !showsBound(strings.Join(strings.Fields(text), " ")) && !slices.Contains(names, name) {
				names = append(names, name)
			}
			return false
		})
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			inspect(d.Name.Name, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					inspect(values.Names[0].Name, values)
				}
			}
		}
	}
	return names, statements
}

// TestSQL_WorkThatGrowsHasABound checks that each statement of the two stores shows its bound or has one in the table,
// and that the table has no other rows.
func TestSQL_WorkThatGrowsHasABound(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("SQL_BOUNDS.md")
	must(t, err)
	row := regexp.MustCompile("(?m)^\\| `([a-z]+/[a-z_]+\\.go)` ([^|]+) \\| ([^|]+) \\|$")
	bounds := map[string]string{}
	for _, found := range row.FindAllStringSubmatch(string(content), -1) {
		for name := range strings.SplitSeq(found[2], ", ") {
			bounds[found[1]+" "+strings.TrimSpace(name)] = found[3]
		}
	}
	statements := 0
	seen := map[string]bool{}
	for _, service := range []string{"authserver", "resourceapi"} {
		folder := filepath.Join("..", service, "internal", "store", "postgres")
		must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if entry.IsDir() && entry.Name() == "postgrestest" {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			names, here := unboundedIn(t, path)
			statements += here
			for _, name := range names {
				key := service + "/" + filepath.Base(path) + " " + name
				seen[key] = true
				if bounds[key] == "" {
					t.Errorf("%s: a statement has no limit and finds no record by its key: bound its work, and say in "+
						"SQL_BOUNDS.md what bounds it", key)
				}
			}
			return nil
		}))
	}
	for _, key := range slices.Sorted(maps.Keys(bounds)) {
		if !seen[key] {
			t.Errorf("%s: SQL_BOUNDS.md has a bound for a statement that shows it, or that does not exist", key)
		}
	}
	if statements < 300 {
		t.Errorf("%d statements were found, which is too few", statements)
	}
}

// The rule finds statements that work on all rows of a workspace, a form, a client or a user.
func TestSQL_BoundIsSeenInStatements(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"delete from resource.submissions where tenant_id = $1 and form_id = $2":                         false,
		"select name from account.memberships where tenant_id = @tenant order by name":                   false,
		"update account.grants g set state = 'revoked' where g.client_id = @client":                      false,
		"select count(*) from account.grants where user_id = $1":                                         false,
		"delete from resource.submissions where tenant_id = $1 and id = $2":                              true,
		"select name from account.memberships where tenant_id = @tenant order by name limit @most":       true,
		"insert into account.audit_events (id) values ($1)":                                              true,
		"select pg_advisory_xact_lock(hashtextextended($1, 0))":                                          true,
		"update account.client_secrets set expires_at = now() where client_id = $1 and secret_hash = $2": true,
	} {
		if got := showsBound(sql); got != want {
			t.Errorf("%v: %s", got, sql)
		}
	}
}
