package runbooks

import (
	"context"
	"os"
	"path/filepath"
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
			if !slices.Contains(all, name) && !slices.Contains(ignored, name) && o.hasProgram(name) {
				all = append(all, name)
			}
		}
	}
	return all
}

func (o *operator) hasProgram(name string) bool {
	at := slices.IndexFunc(o.environ, func(setting string) bool { return strings.HasPrefix(setting, "PATH=") })
	for dir := range strings.SplitSeq(strings.TrimPrefix(o.environ[at], "PATH="), ":") {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// failEach runs a block once for each of its programs, with that program failing (F90). The block ends, says that
// something failed, and does not say that it is complete. The caller then runs the block itself, which shows that
// nothing it needs was lost.
func (o *operator) failEach(t *testing.T, page, name, input string, further ...string) {
	t.Helper()
	all, err := blocks(page)
	must(t, err)
	at := slices.IndexFunc(all, func(b block) bool { return b.name == name })
	if at < 0 {
		t.Fatalf("%s has no block %s", page, name)
	}
	for _, program := range o.programsOf(all[at].text) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Long)
		path, atOnce := o.replaced(t, program, failsAtOnce), o.replaced(t, "sleep", "exit 0")
		both, _, _ := strings.Cut(atOnce, ":")
		with := append(slices.Clone(further), both+":"+strings.TrimPrefix(path, "PATH="))
		out, complaint, err := o.shell(ctx, t, all[at].asPostgres, input, all[at].text, with...)
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
