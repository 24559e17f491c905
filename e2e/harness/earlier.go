package harness

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
)

// Earlier builds both services as they were at a commit, and returns the directory of their binaries. The test is
// skipped where that commit, or a library that it used, cannot be had: in a copy without history, or without a network.
func Earlier(t testing.TB, commit string) string {
	t.Helper()
	root := holding(t, commit)
	source, binaries := t.TempDir(), t.TempDir()
	archive := filepath.Join(t.TempDir(), "source.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, commit},
		{"tar", "-x", "-C", source, "-f", archive},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command[0], err, out)
		}
	}
	list := exec.CommandContext(
		t.Context(),
		"go",
		"list",
		"-deps",
		"./authserver/cmd/authserver",
		"./resourceapi/cmd/resourceapi",
	)
	list.Dir, list.Env = source, append(os.Environ(), "GOTOOLCHAIN=local", "GOFLAGS=")
	if out, err := list.CombinedOutput(); err != nil {
		t.Skipf("the libraries of the commit %.10s are not to be had: %.300s", commit, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	if err := stack.Build(ctx, source, binaries); err != nil {
		t.Fatal(err)
	}
	return binaries
}

// Committed are the names of the files that a folder of the repository had at a commit. The test is skipped where that
// commit cannot be had.
func Committed(t testing.TB, commit, folder string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", holding(t, commit), "ls-tree", "--name-only", commit+":"+folder).
		Output()
	if err != nil {
		t.Fatalf("%s of the commit %.10s: %v", folder, commit, err)
	}
	return strings.Fields(string(out))
}

// holding is the root of the repository, which has the commit in its history.
func holding(t testing.TB, commit string) string {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the commit %.10s is not in this copy: %s", commit, out)
	}
	return root
}

// Through sends every request past the gateway to one process of each service, by which address it was meant for.
type Through struct {
	Stack                   *stack.Stack
	Authserver, Resourceapi *stack.Service
}

// RoundTrip implements http.RoundTripper.
func (w Through) RoundTrip(r *http.Request) (*http.Response, error) {
	service := w.Resourceapi
	if strings.HasPrefix(r.URL.String(), w.Stack.AppURL+"/") || gateway.IsAccount(r.URL.Path) {
		service = w.Authserver
	}
	address, err := url.Parse(service.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	r.URL.Host = address.Host
	return http.DefaultTransport.RoundTrip(r)
}
