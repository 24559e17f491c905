package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A distributed Postgres refuses some statements that a plain Postgres accepts, and sends others to every node. These
// rules apply to the SQL of a service and of its migrations.

// distributable are the services that obey the rules.
var distributable = []string{"authserver"}

// beforeDistribution begin the statements of two functions that only programs from before these rules call.
var beforeDistribution = []string{
	"create function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[], kids",
	"update account.grants set first_used_at = coalesce(first_used_at, now()), last_used_at = case when",
}

// locatesGrants are the only statements that find a grant by its id alone.
var locatesGrants = []string{
	"select tenant_id from account.grants where id = $1",           // tokens of the former format
	"select " + between + " from account.grants g where g.id = $1", // an operator names a grant
}

// between stands for the parts of an SQL text that are not literals.
const between = "…"

var (
	clock    = regexp.MustCompile(`(?i)\b(now|clock_timestamp|statement_timestamp)\(\)`)
	conflict = regexp.MustCompile(`(?is)\bdo update\b(.*)`)
	// Values may contain calls of functions.
	subqueryInValues = regexp.MustCompile(`(?is)\bvalues\s*\((?:[^()]|\([^()]*\))*\(\s*select\b`)

	hidden      = regexp.MustCompile(`(?i)\bctid\b`)
	grantByID   = regexp.MustCompile(`(?is)\baccount\.grants\b.*\bid = (\$|@|any\b|asked\.|step\.)`)
	grantLocked = regexp.MustCompile(`(?is)\baccount\.grants\b.*\bfor (update|no key update|share)\b`)
)

// brokenRules returns the rules that a statement breaks.
func brokenRules(sql string) (broken []string) {
	if clock.MatchString(strings.Join(choices(sql), " ")) {
		broken = append(broken, "it reads the time inside case, coalesce, least or greatest: read the time before")
	}
	if update := conflict.FindString(sql); clock.MatchString(update) {
		broken = append(broken, "it reads the time inside do update: insert the time and use excluded")
	}
	if subqueryInValues.MatchString(sql) {
		broken = append(broken, "it has a subquery in values: use insert into … select, or an expression")
	}
	if hidden.MatchString(sql) {
		broken = append(broken, "it uses ctid: use the primary key")
	}
	if grantByID.MatchString(sql) && !strings.Contains(sql, "tenant_id") {
		broken = append(broken, "it finds a grant by its id alone: add tenant_id")
	}
	if grantLocked.MatchString(sql) && !strings.Contains(sql, "tenant_id") {
		broken = append(broken, "it locks grants of several workspaces: lock the grants of one workspace")
	}
	return broken
}

var opening = regexp.MustCompile(`(?i)\bcase\b|\b(coalesce|least|greatest)\s*\(`)

// choices returns the expressions that Postgres may evaluate only in part.
func choices(sql string) (out []string) {
	for _, at := range opening.FindAllStringIndex(sql, -1) {
		rest := sql[at[1]:]
		if strings.HasSuffix(sql[:at[1]], "(") {
			out = append(out, rest[:closing(rest)])
		} else if text, _, found := strings.Cut(rest, "end"); found {
			out = append(out, text)
		}
	}
	return out
}

// closing returns the index of the parenthesis that closes an opened one.
func closing(text string) int {
	depth := 1
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

func TestSQL_IsAcceptedByDistributedPostgres(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, service := range distributable {
		eachFile(t, service+"/internal", func(path string) {
			switch {
			case filepath.Base(filepath.Dir(path)) == "migrations":
				checkMigration(t, path, string(fileContent(t, path)))
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				seen += checkStrings(t, path)
			}
		})
	}
	if seen < 200 {
		t.Errorf("%d statements were found, which is too few", seen)
	}
}

var statement = regexp.MustCompile(`(?i)\b(select|update|insert into|delete from)\b`)

// checkStrings checks the SQL of a source file and returns the number of its statements.
func checkStrings(t *testing.T, path string) (statements int) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	must(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectorExpr:
			if n.Sel.Name == "ConstraintName" {
				t.Errorf("%s: ConstraintName: shards have names of their own; compare Code and TableName",
					files.Position(n.Pos()))
			}
		case *ast.ImportSpec:
			return false
		case ast.Expr:
			text, literal := literalOf(n)
			if !literal {
				return true
			}
			if statement.MatchString(text) {
				statements++
				checkSQL(t, files.Position(n.Pos()).String(), text)
			}
			return false
		}
		return true
	})
	return statements
}

// literalOf returns the text of a string literal or a concatenation, with between for what is not a literal.
func literalOf(e ast.Expr) (text string, literal bool) {
	switch n := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil && n.Kind == token.STRING
	case *ast.BinaryExpr:
		left, first := literalOf(n.X)
		right, second := literalOf(n.Y)
		if !first {
			left = between
		}
		if !second {
			right = between
		}
		return left + right, n.Op == token.ADD && (first || second)
	}
	return "", false
}

// checkMigration checks the statements of a migration, without their comments.
func checkMigration(t *testing.T, path, source string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(source) {
		code, _, _ := strings.Cut(line, "--")
		lines = append(lines, code)
	}
	for one := range strings.SplitSeq(strings.Join(lines, "\n"), ";") {
		checkSQL(t, path, strings.ReplaceAll(one, " grants ", " account.grants "))
	}
}

func checkSQL(t *testing.T, where, sql string) {
	t.Helper()
	words := strings.Join(strings.Fields(sql), " ")
	former := slices.ContainsFunc(beforeDistribution, func(s string) bool { return strings.HasPrefix(words, s) })
	if former || slices.Contains(locatesGrants, words) {
		return
	}
	for _, broken := range brokenRules(words) {
		t.Errorf("%s: %s\n\t%s", where, broken, words)
	}
}

// Each rule finds a statement that breaks it.
func TestSQL_RulesFindBrokenStatements(t *testing.T) {
	t.Parallel()
	for sql, rules := range map[string]int{
		`update t set a = case when b then now() else a end where id = $1`:                        1,
		`update t set a = coalesce(a, now())`:                                                     1,
		`select least(a, b, (now()))`:                                                             1,
		`insert into t (a) values (1) on conflict (a) do update set b = now()`:                    1,
		`delete from t where ctid in (select ctid from t limit 3)`:                                1,
		`update account.grants set state = 'revoked' where id = $1`:                               1,
		`select from account.grants g where g.user_id = $1 order by g.id for update`:              1,
		`insert into t (a, b) values (f($1), (select now() where $2))`:                            1,
		`update t set a = now() where b < now()`:                                                  0,
		`update account.grants set state = 'revoked' where tenant_id = $1 and id = $2`:            0,
		`select case when a then b else c end, now()`:                                             0,
		`insert into t (a, b) values (1, now()) on conflict (a) do update set b = excluded.b`:     0,
		`select from account.grants where tenant_id = $1 and user_id = $2 order by id for update`: 0,
	} {
		if broken := brokenRules(sql); len(broken) != rules {
			t.Errorf("%s: %q", sql, broken)
		}
	}
}

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
	for _, declared := range parseFile(t, path).Decls {
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
	content := fileContent(t, "SQL_BOUNDS.md")
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
		eachFile(t, service+"/internal/store/postgres", func(path string) {
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "/postgrestest/") {
				return
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
		})
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
