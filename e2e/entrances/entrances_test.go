// Package entrances checks that each place where an address, a password, a code, a phone number or words of a search
// enter the services decides their spelling with shared/contract/spelling (contract, section 5). The places are found
// in the source: fields of forms and queries, members of JSON, arguments of the operator's commands, and SQL that
// compares addresses. A new one fails until it has a row in ENTRANCES.md and calls what the row names.
package entrances

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// names are the fields, members and columns that people type or paste.
var names = []string{
	"email", "password", "new-password", "code", "phone", "person", "application", "request", "q", "url",
	"redirect_uris", "days",
}

// comparesAddress finds SQL that compares an address, or stores one.
var comparesAddress = regexp.MustCompile(
	`(?i)\b(email|email_hash|old_email|new_email)\b\s*(=|<>|\)\s*(=|<>))|insert into \w+\.(users|invitations|` +
		`email_changes|supporters|invitation_messages)\b`)

// A place is a function, or a type, with something that enters.
type place struct {
	key, text string
}

// places returns the places of a file.
func places(t *testing.T, path string) (found []place) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	short := strings.TrimPrefix(filepath.ToSlash(path), "../../")
	for _, declared := range file.Decls {
		name := ""
		switch d := declared.(type) {
		case *ast.FuncDecl:
			name = d.Name.Name
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					name = s.Names[0].Name
				case *ast.TypeSpec:
					name = s.Name.Name
				}
			}
		}
		text := string(content[set.Position(declared.Pos()).Offset:set.Position(declared.End()).Offset])
		for _, what := range entering(declared, short) {
			if p := (place{short + " " + name + " " + what, text}); !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// entering returns what enters in a declaration.
func entering(declared ast.Node, path string) (found []string) {
	ast.Inspect(declared, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			if reads(called(n.Fun)) {
				for _, argument := range n.Args {
					if name := literal(argument); slices.Contains(names, name) {
						found = append(found, name)
					}
				}
			}
		case *ast.Field:
			if n.Tag == nil {
				return true
			}
			tag := reflect.StructTag(literal(n.Tag))
			name, _, _ := strings.Cut(tag.Get("json"), ",")
			if name == "email" || name == "password" || name == "phone" {
				found = append(found, "json:"+name)
			}
			_, argument := tag.Lookup("help")
			ofCommand := strings.Contains(path, "/cmd/") || strings.Contains(path, "/internal/admin/") ||
				strings.Contains(path, "/internal/doctor/")
			if argument && ofCommand && len(n.Names) == 1 &&
				slices.Contains([]string{"Email", "User"}, n.Names[0].Name) {
				found = append(found, "argument:"+n.Names[0].Name)
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				kind := last(e)
				if strings.HasPrefix(path, "resourceapi/internal/engage/") && (kind == "Email" || kind == "Phone") {
					found = append(found, "case")
				}
			}
		case *ast.BasicLit:
			if strings.Contains(path, "/store/postgres/") && comparesAddress.MatchString(literal(n)) {
				found = append(found, "sql")
			}
		}
		return true
	})
	return found
}

// called returns the name of a function or method.
func called(fun ast.Expr) string {
	if selector, ok := fun.(*ast.SelectorExpr); ok {
		return selector.Sel.Name
	}
	return last(fun)
}

func reads(method string) bool {
	return slices.Contains([]string{"Get", "FormValue", "PostFormValue", "Text", "readWords"}, method)
}

// last returns the last name of an expression such as field.Type == Email.
func last(e ast.Expr) string {
	switch n := e.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.BinaryExpr:
		if n.Op == token.LAND {
			return last(n.X)
		}
		return last(n.Y)
	}
	return ""
}

func literal(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(l.Value)
	return text
}

// files returns the Go files of both services, without tests, their helpers, and the doctor, which is a client.
func files(t *testing.T) (found []string) {
	t.Helper()
	for _, service := range []string{"authserver", "resourceapi"} {
		err := filepath.WalkDir(filepath.Join("..", "..", service), func(path string, d fs.DirEntry, err error) error {
			if d.IsDir() && slices.Contains([]string{"testing", "postgrestest"}, d.Name()) {
				return filepath.SkipDir
			}
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:`([^`]+)`|([^|`]+)) \\|$")

// Each entrance has a row, and calls what its row names. What rows name calls shared/contract/spelling itself.
func TestEntrances_DecideSpelling(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("ENTRANCES.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][2]string{}
	for _, found := range row.FindAllStringSubmatch(string(content), -1) {
		rows[found[1]] = [2]string{found[2], found[3]}
	}
	all := files(t)
	seen := 0
	for _, path := range all {
		for _, p := range places(t, path) {
			known, ok := rows[p.key]
			switch {
			case !ok:
				t.Errorf("| `%s` | |: add a row, and decide the spelling with shared/contract/spelling", p.key)
				continue
			case known[0] != "" && !strings.Contains(p.text, known[0]):
				t.Errorf("%s does not call %s, as its row says", p.key, known[0])
			case known[0] != "" && !strings.HasPrefix(known[0], "spelling.") && deciders[known[0]] == "":
				t.Errorf("%s: %s is in no list of functions that decide a spelling", p.key, known[0])
			}
			delete(rows, p.key)
			seen++
		}
	}
	for key := range rows {
		t.Errorf("%s has a row, and does not exist", key)
	}
	if seen < 50 {
		t.Errorf("only %d entrances were found", seen)
	}
}

// deciders are the functions through which other packages decide a spelling: their files, which call package spelling.
var deciders = map[string]string{
	"membership.ParseEmail(":  "authserver/internal/account/membership/membership.go",
	"password.Choose(":        "authserver/internal/signin/password/password.go",
	"password.CheckForm(":     "authserver/internal/signin/password/password.go",
	".Verify(":                "authserver/internal/signin/session/passwords.go",
	".currentPassword(":       "authserver/internal/signin/session/passwords.go",
	".Secret.Check(":          "authserver/internal/signin/authenticator/authenticator.go",
	".beginWithCode(":         "authserver/internal/signin/authenticator/authenticator.go",
	"readWords(":              "authserver/internal/endpoint/settings/list.go",
	".Invite(":                "authserver/internal/account/membership/membership.go",
	"membership.ParseEmails(": "authserver/internal/account/membership/membership.go",
}

func TestEntrances_DecidersCallSpelling(t *testing.T) {
	t.Parallel()
	for call, path := range deciders {
		content, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil || !strings.Contains(string(content), "spelling.") {
			t.Errorf("%s: %s does not call shared/contract/spelling (%v)", call, path, err)
		}
	}
}
