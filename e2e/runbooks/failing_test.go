package runbooks

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// failed contains the blocks that failEach has run, as page#name.
var failed sync.Map

// functions are the programs that the functions of the README run.
var functions = map[string][]string{
	"admin":   {"authserver"},
	"migrate": {"authserver", "resourceapi"},
	"redis":   {"redis-cli", "cat"},
	"secret":  {"cat"},
	"keep":    {"mv"},
}

// Text in single quotes has commands of other programs, and comments have none. The ignored programs are part of the
// shell, except sleep, which only waits.
var (
	quoted  = regexp.MustCompile(`'[^']*'|(?m)(^|\s)#.*$`)
	ignored = []string{"echo", "printf", "test", "false", "kill", "sleep"}
)

// commandWord finds the words of a block that may be commands.
var commandWord = regexp.MustCompile(
	`(?m)(?:^|[;&|(!]|\b(?:then|do|else)\s)\s*(?:[A-Z_]+=\S*\s+)*([a-z][a-z0-9_-]*)\b(\)?)`)

// programsOf returns the programs that a block runs.
func (o *operator) programsOf(text string) []string {
	var all []string
	for _, found := range commandWord.FindAllStringSubmatch(quoted.ReplaceAllString(text, "''"), -1) {
		if found[2] != "" { // a pattern of case
			continue
		}
		names := functions[found[1]]
		if names == nil {
			names = []string{found[1]}
		}
		for _, name := range names {
			if !slices.Contains(all, name) && !slices.Contains(ignored, name) && o.program(name) != "" {
				all = append(all, name)
			}
		}
	}
	return all
}

// failEach runs a block once for each of its programs, with that program failing (F90). The block ends, says that
// something failed, and does not say that it is complete. The caller then runs the block itself, which shows that
// nothing it needs was lost.
func (o *operator) failEach(t *testing.T, page, name, input string, further ...string) {
	t.Helper()
	one := blockOf(t, page, name)
	for _, program := range o.programsOf(one.text) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Long)
		// A block that waits for something waits for a short time.
		path := o.replaced(t, program, failsAtOnce, "sleep", "exit 0", "seq", "echo 1 2 3")
		with := append(slices.Clone(further), path)
		out, complaint, err := o.shell(ctx, t, one.asPostgres, input, one.text, with...)
		what := page + "#" + name + ", while " + program + " fails,"
		switch {
		case ctx.Err() != nil:
			t.Errorf("%s does not end", what)
		case err == nil && complaint == "":
			t.Errorf("%s says nothing:\n%s", what, harness.Redact(out))
		case err == nil && strings.HasSuffix(strings.TrimSpace(out), "Complete."):
			t.Errorf("%s says that it is complete:\n%s", what, harness.Redact(out+complaint))
		}
		cancel()
	}
}
