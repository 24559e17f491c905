package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// activeProgramme is an active programme of the demo's main workspace.
const activeProgramme = "Tea Dance at Wisbech"

// pages are the pages whose lines can be pasted, in this order: the second one uses variables of the first.
func pages(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, name := range []string{"../README.md", "../authserver/README.md"} {
		page, err := os.ReadFile(name)
		must(t, err)
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
	stack := shared(t)
	demo, err := json.MarshalIndent(stack.Demo, "", "  ")
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, ".almoner", "bin"), 0o700))
	repository, err := filepath.Abs("..")
	must(t, err)
	for name, there := range map[string]string{
		".almoner/admin.env":       stack.AdminFile(),
		".almoner/resourceapi.env": stack.ResourceapiFile(),
		".almoner/bin/authserver":  stack.Authserver(),
		".almoner/bin/resourceapi": filepath.Join(filepath.Dir(stack.Authserver()), "resourceapi"),
		"shared":                   filepath.Join(repository, "shared"),
	} {
		must(t, os.Symlink(there, filepath.Join(dir, name)))
	}
	must(t, os.WriteFile(filepath.Join(dir, ".almoner", "demo.json"), demo, 0o600))
	for _, shell := range []string{"bash", "sh"} {
		command := exec.CommandContext(t.Context(), shell, "-c", script)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		output := string(out)
		for want, times := range map[string]int{
			`"nextCursor"`:                   3,
			`"error"`:                        1,
			`"type":"personal_access_token"`: 1,
			`"structuredContent":{"user":`:   1,
			"All is well so far":             1,
			`/v1/engage/public/embed.js" data-form="alm_embed_`:          1,
			"\n" + activeProgramme + "\n":                                1,
			"\nprogrammes:read:programmes programmes:write:programmes\n": 1,
			"\nprogrammes:read:programmes\n":                             1,
			"\nthe same token again\n":                                   1,
			`"error":"invalid_grant"`:                                    1,
			"Sam Reed":                                                   1,
			"Removed the member. Revoked:":                               1,
			"\n1 created, 0 changed, 0 unchanged\nDry run: ":             2,
			"\n1 created, 0 changed, 0 unchanged\n":                      3,
		} {
			if got := strings.Count(output, want); got != times {
				t.Errorf("%s: %q is in the output %d times, want %d (%d bytes)", shell, want, got, times, len(out))
			}
		}
	}
}

// The Go block of the README is the program that the page runs.
func TestREADME_GoBlockIsInExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	program, err := os.ReadFile("../shared/client/examples/list/main.go")
	must(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("no Go block")
	}
	for line := range strings.Lines(string(block[1])) {
		if !strings.Contains(string(program), "\n\t"+line) {
			t.Errorf("not in the program: %s", line)
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, want at most 150", lines)
	}
}
