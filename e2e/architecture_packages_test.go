package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
	content, err := os.ReadFile(contributing)
	must(t, err)
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
