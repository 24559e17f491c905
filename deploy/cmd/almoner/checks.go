package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

const (
	vulnerabilityDatabase = "https://vuln.go.dev/index/db.json"
	databaseAnswersWithin = 5 * time.Second
	scanWithin            = 3 * time.Minute
)

// check runs the static checks that are not tests of e2e.
func (t *testRun) check(ctx context.Context) {
	t.step(ctx, "go vet", ".", nil, "go", append([]string{"vet"}, patterns()...)...)
	for _, name := range outside() {
		t.step(ctx, "go vet, "+name, name, ownDependencies(), "go", "vet", "./...")
	}
	t.step(ctx, "build the checkers", "deploy/tools", ownDependencies(), "go", "build", "-o",
		t.bin+string(filepath.Separator), "honnef.co/go/tools/cmd/staticcheck", "golang.org/x/vuln/cmd/govulncheck")
	staticcheck := filepath.Join(t.bin, "staticcheck")
	t.step(ctx, "staticcheck", ".", nil, staticcheck, patterns()...)
	for _, name := range outside() {
		t.step(ctx, "staticcheck, "+name, name, ownDependencies(), staticcheck, "./...")
	}
	t.scanForVulnerabilities(ctx)
}

// scanForVulnerabilities reports known vulnerabilities in dependencies. It never fails the run, since its database
// changes without the code and is not reachable from everywhere.
func (t *testRun) scanForVulnerabilities(ctx context.Context) {
	if !answers(vulnerabilityDatabase) {
		t.say("govulncheck skipped: its database is not reachable")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	for _, service := range stack.Services() { // only these are deployed
		t.say("govulncheck, " + service)
		scan := t.command(ctx, service, nil, os.Stdout, filepath.Join(t.bin, "govulncheck"), "./...")
		if err := scan.Run(); err != nil {
			t.say(fmt.Sprintf("WARNING: govulncheck, %s: %v", service, err))
		}
	}
}

func answers(address string) bool {
	response, err := (&http.Client{Timeout: databaseAnswersWithin}).Head(address)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// raceWorks reports whether a C program compiles, which the race detector needs.
func (t *testRun) raceWorks(ctx context.Context) bool {
	compiler := t.command(ctx, ".", nil, io.Discard, "gcc", "-x", "c", "-o", os.DevNull, "-")
	compiler.Stdin = strings.NewReader("#include <stdlib.h>\nint main(void) { return 0; }\n")
	return compiler.Run() == nil
}

// command returns a command that runs in a folder of the repository. When ctx ends, its process group is interrupted as
// by Ctrl-C.
func (t *testRun) command(
	ctx context.Context, folder string, extra []string, out io.Writer, program string, arguments ...string,
) *exec.Cmd {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = filepath.Join(t.root, folder)
	command.Env = append(append([]string{}, t.env...), extra...)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = 20 * time.Second
	return command
}

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
