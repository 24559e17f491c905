package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// pages are the pages whose lines can be pasted, in this order: the second one uses variables of the first.
func pages(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, name := range []string{"../README.md", "../authserver/README.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
	}
	return all
}

// The lines of the README and of authserver's work as they are when pasted, one block after the other.
func TestREADME_LinesWorkWhenPasted(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(pages(t), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks to paste", len(blocks))
	}
	script := "set -eu\n"
	for _, block := range blocks {
		script += string(block[1])
	}
	dir := t.TempDir()
	stack := harness.Shared(t)
	demo, err := json.MarshalIndent(stack.Demo, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".almoner", "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]string{"admin.env": stack.AdminFile(), "bin/authserver": stack.Authserver()} {
		if err := os.Symlink(there, filepath.Join(dir, ".almoner", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".almoner", "demo.json"), demo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "sh"} {
		command := exec.CommandContext(t.Context(), shell, "-c", script)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		output := string(out)
		if strings.Count(output, `"nextCursor"`) != 3 || !strings.Contains(output, `"structuredContent":{"user":`) ||
			!strings.Contains(output, "\nprogrammes:read:programmes programmes:write:programmes\n") ||
			!strings.Contains(output, "\nthe same token again\n") ||
			!strings.Contains(output, `"error":"invalid_grant"`) || strings.Count(output, `"error"`) != 1 ||
			!strings.Contains(output, "Sam Reed") ||
			!strings.Contains(output, "Removed the member. Revoked:") ||
			!strings.Contains(output, `/v1/engage/public/embed.js" data-form="alm_embed_`) {
			t.Errorf("%s: the lines do not do what the README says of them (%d bytes of output)", shell, len(out))
		}
	}
}

// The Go block of the README compiles, in a module that requires the client alone.
func TestREADME_GoBlockCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("no Go block")
	}
	module, err := filepath.Abs("../shared/client")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/readme\n\ngo 1.26.0\n\n" +
			"require github.com/almonerhq/almoner/shared/client v0.0.0\n\nrequire golang.org/x/oauth2 v0.37.0\n\n" +
			"replace github.com/almonerhq/almoner/shared/client => " + module + "\n",
		"go.sum": string(sums),
		"main.go": "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"log\"\n\t\"os\"\n\n" +
			"\t\"golang.org/x/oauth2\"\n\n\t\"github.com/almonerhq/almoner/shared/client\"\n)\n\n" +
			"func main() {\n\tctx := context.Background()\n" + string(block[1]) + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "vet", ".")
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
