package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// packages returns the packages with tests of the modules in go.work except e2e. concurrent are those that share memory
// between goroutines. plain includes the services and their pages, whose tests take three times as long with the race
// detector; the data that they share is in other packages. It also includes the tools of developers. `make torture
// PART=detector` tests all packages.
func (t *testRun) packages(ctx context.Context) (plain, concurrent []string, err error) {
	var out bytes.Buffer
	list := t.command(ctx, ".", nil, &out, "go", append([]string{
		"list",
		"-f={{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .Imports \" \"}}{{end}}",
	}, patterns(endToEnd)...)...)
	if err := list.Run(); err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		if isTool(path) || isPages(path) || !sharesMemory(strings.Fields(imports)) {
			plain = append(plain, path)
		} else {
			concurrent = append(concurrent, path)
		}
	}
	// go test starts the packages in this order.
	byRank := func(a, b string) int { return cmp.Compare(rank(a), rank(b)) }
	slices.SortStableFunc(concurrent, byRank)
	slices.SortStableFunc(plain, byRank)
	return plain, concurrent, nil
}

// rank is lower for packages whose tests start first, because they take longest.
func rank(path string) int {
	for i, name := range []string{"/internal/app", "/internal/store/postgres", "/internal/oauth/grant"} {
		if strings.HasSuffix(path, name) {
			return i
		}
	}
	return math.MaxInt
}

// isPages reports whether a package has a whole service or builds its pages.
func isPages(path string) bool {
	return strings.HasSuffix(path, "/internal/app") || strings.HasSuffix(path, "/internal/endpoint/apidoc")
}

// isTool reports whether a package is not part of the services.
func isTool(path string) bool {
	return strings.Contains(path, "/deploy/") || strings.Contains(path, "/shared/devkit/")
}

func sharesMemory(imports []string) bool {
	return slices.ContainsFunc(imports, func(path string) bool {
		return path == "sync" || path == "sync/atomic" || strings.HasPrefix(path, "golang.org/x/sync/")
	})
}
