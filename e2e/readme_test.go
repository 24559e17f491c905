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

// The commands in the README work when they are pasted one block after the other.
func TestREADME_CommandsWork(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of commands", len(blocks))
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
			!strings.Contains(output, `"error":"invalid_grant"`) || strings.Count(output, `"error"`) != 1 ||
			!strings.Contains(output, "Sam Reed") ||
			!strings.Contains(output, "The user is no longer a member. Revoked:") ||
			!strings.Contains(output, `/v1/engage/public/embed.js" data-form="alm_embed_`) {
			t.Errorf("%s: the commands do not print what the README says (%d bytes of output)", shell, len(out))
		}
	}
}
