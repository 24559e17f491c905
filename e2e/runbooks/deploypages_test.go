package runbooks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// recoveryPage is run as the runbooks are.
const recoveryPage = "recovery.md"

// shellFence finds the blocks that an operator pastes or types.
var shellFence = regexp.MustCompile("(?ms)^```(sh|console)([^\n]*)\n(.*?)^```$")

// setupPath is how the pages call setup.sh. The tests of deploy/checks run it.
var setupPath = regexp.MustCompile(`(\./|deploy/)setup\.sh`)

// filters only read their standard input, so it does no harm if one runs after a failure.
var filters = []string{"head", "basenc", "tr", "sed", "cat", "grep"}

// background is the program that a block starts with &: its call may be recorded after that of a later command.
const background = "python3"

// fakes are the programs that change an installation, and what they print here instead. Other programs are real.
var fakes = map[string]string{
	"apt-get": "", "caddy": "", "claude": "", "codex": "", "docker": "", "git": "", "go": "", "kubectl": "", "make": "",
	"mcporter": "", "nginx": "", "npx": "", "opencode": "", "python3": "", "resourceapi": "", "setup.sh": "",
	"sha256sum": "", "skopeo": "", "sleep": "", "systemctl": "", "tar": "",
	"authserver": `{"id": "1"}`, "curl": `{"id":"1"}`, "dpkg": "amd64",
}

// variables are those of the README's first request, which the blocks for the demo use.
const variables = `field() { sed -n 's/value/value/p' .almoner/demo.json | head -n 1; }
API=https://api.example.org WORKSPACE=1
`

// recorder notes each call in the folder $CALLS, as program.number, and the calls after a failure in the file "after".
// The call $FAILS fails.
const recorder = `#!/bin/sh
name=${0##*/} number=1
until /bin/mkdir "$CALLS/$name.$number" 2>/dev/null; do number=$((number+1)); done
[ -e "$CALLS/failed" ] && printf '%s\n' "$name $*" >>"$CALLS/after"
if [ "$name.$number" = "$FAILS" ]; then
  [ -p /dev/stdin ] && /bin/cat >/dev/null # the programs before it in a pipe have been called
  : >"$CALLS/failed"; echo "$name: failed" >&2; exit 1
fi
`

// Each block of the pages outside the runbooks runs as a shell runs it into which it is pasted: as it is, and once for
// each call of a program, with that call failing (F90). After the failure nothing else is called, and the block prints
// an error and not that it is complete. Run again, it completes and keeps the secrets that it has made. A line of a
// console block is typed by itself.
func TestDeployPages_NothingFollowsAFailure(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "citus/*.md"} {
		found, err := filepath.Glob(filepath.Join("../../deploy", pattern))
		must(t, err)
		pages = append(pages, found...)
	}
	var tried atomic.Int64
	t.Run("page", func(t *testing.T) {
		for _, page := range pages {
			if filepath.Base(page) == recoveryPage {
				continue
			}
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				content, err := os.ReadFile(page)
				must(t, err)
				for _, fenced := range shellFence.FindAllSubmatch(content, -1) {
					for _, lines := range pasted(string(fenced[1]), string(fenced[3])) {
						tried.Add(tryWithFailures(t, lines))
					}
				}
			})
		}
	})
	if tried.Load() < 60 {
		t.Errorf("only %d calls failed in turn: the pages are not read", tried.Load())
	}
}

// pasted returns what is given to the shell at once: a whole block, or one command of a console block.
func pasted(kind, text string) []string {
	if kind == "sh" {
		return []string{text}
	}
	return strings.Split(strings.TrimPrefix(text, "$ "), "\n$ ")
}

// tryWithFailures runs lines with each of their calls failing in turn, and returns how many there were.
func tryWithFailures(t *testing.T, lines string) int64 {
	t.Helper()
	_, complaint, calls, _ := runRecorded(t, t.TempDir(), lines, "")
	if strings.Contains(complaint, "not found") {
		t.Errorf("%s\n%s", complaint, lines)
	}
	for _, call := range calls {
		if strings.HasPrefix(call, "git.") || strings.HasPrefix(call, background+".") {
			continue // the commit is only a label; the next command waits for the receiver in the background
		}
		dir := t.TempDir()
		out, complaint, _, after := runRecorded(t, dir, lines, call)
		what := "while " + call + " fails:"
		if after != "" {
			t.Errorf("%s %s runs afterwards, in\n%s", what, after, lines)
		}
		if complaint == "" || strings.Contains(out, "Complete.") {
			t.Errorf("%s it prints %q and complains %q", what, out, complaint)
		}
		secrets := secretsIn(t, dir)
		if !strings.Contains(lines, "echo Complete.") && len(secrets) == 0 {
			continue
		}
		out, complaint, _, _ = runRecorded(t, dir, lines, "")
		if strings.Contains(lines, "echo Complete.") && !strings.HasSuffix(out, "Complete.\n") {
			t.Errorf("%s run again, it prints %q and complains %q", what, out, complaint)
		}
		for name, content := range secretsIn(t, dir) {
			if before := secrets[name]; content == "" || before != "" && content != before {
				t.Errorf("%s run again, it changes or empties %s", what, name)
			}
		}
	}
	return int64(len(calls))
}

// secretsIn returns the content of the files that a block has made for secrets.
func secretsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*-keys", "*-redis-password"} {
		names, err := filepath.Glob(filepath.Join(dir, "release", pattern))
		must(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			must(t, err)
			found[filepath.Base(name)] = string(content)
		}
	}
	return found
}

// runRecorded runs lines in the folder of a release, with the folders of the system inside dir, and returns what they
// print and call, and what they call after the call that fails.
func runRecorded(t *testing.T, dir, lines, fails string) (out, complaint string, calls []string, after string) {
	t.Helper()
	release := filepath.Join(dir, "release")
	if _, err := os.Stat(release); err != nil {
		writeRelease(t, dir, release)
	}
	record := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), await.Long)
	defer cancel()
	for _, top := range []string{"/etc/", "/usr/", "/var/"} {
		lines = strings.ReplaceAll(lines, top, dir+top)
	}
	lines = setupPath.ReplaceAllString(lines, "setup.sh")
	command := exec.CommandContext(ctx, "bash", "-c", variables+lines)
	command.Dir = release
	command.Env = []string{
		"PATH=" + filepath.Join(dir, "bin"), "HOME=" + dir, "LANG=C.UTF-8", "CALLS=" + record, "FAILS=" + fails,
		"API_HOST=api.example.org", "APP_HOST=app.example.org", "TLS=internal", "VERSION=0.1.0",
	}
	var printed, complained strings.Builder
	command.Stdout, command.Stderr = &printed, &complained
	_ = command.Run()
	if ctx.Err() != nil {
		t.Errorf("this does not end while %s fails:\n%s", fails, lines)
	}
	entries, err := os.ReadDir(record)
	must(t, err)
	for _, entry := range entries {
		if entry.IsDir() {
			calls = append(calls, entry.Name())
		}
	}
	all, _ := os.ReadFile(filepath.Join(record, "after")) // which is there only if something ran
	for call := range strings.Lines(string(all)) {
		if name, _, _ := strings.Cut(call, " "); name != background && !slices.Contains(filters, name) {
			after += call
		}
	}
	return printed.String(), complained.String(), calls, after
}

// writeRelease writes the files that the pages expect, and a program that records its calls for each that they call.
func writeRelease(t *testing.T, dir, release string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	for _, folder := range []string{
		"bin", "release", "etc/systemd/system", "etc/caddy", "etc/nginx", "etc/almoner/secrets", "usr/local/bin",
		"usr/share", "release/.almoner/bin",
	} {
		must(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	deploy, err := filepath.Abs("../../deploy")
	must(t, err)
	must(t, os.Symlink(deploy, filepath.Join(release, "deploy")))
	must(t, os.Symlink(deploy, filepath.Join(release, "almoner-0.1.0")))
	for _, folder := range []string{"compose", "gateway", "kubernetes", "runbooks", "systemd"} {
		must(t, os.Symlink(filepath.Join(deploy, folder), filepath.Join(release, folder)))
	}
	for _, name := range []string{"authserver-0.1.0-linux-amd64", "resourceapi-0.1.0-linux-amd64", "redis-password"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o600))
		must(t, os.WriteFile(filepath.Join(release, name), []byte("content"), 0o600))
	}
	for _, unit := range []string{"authserver.service", "resourceapi.service"} { // of an older installation
		must(t, os.WriteFile(filepath.Join(dir, "etc/systemd/system", unit), nil, 0o600))
	}
	scripts := map[string]string{}
	for name, answer := range fakes {
		scripts[name] = recorder + "echo '" + answer + "'\n"
	}
	scripts["redis-cli"] = recorder + "while read -r command; do echo OK; done\n"
	for _, name := range append([]string{"install", "mkdir", "cp", "mv", "rm"}, filters...) {
		path, err := exec.LookPath(name)
		must(t, err)
		scripts[name] = recorder + "exec " + path + ` "$@"` + "\n"
	}
	must(t, os.WriteFile(filepath.Join(release, ".almoner", "demo.json"), []byte("value\n"), 0o600))
	must(t, os.Symlink(filepath.Join(bin, "authserver"), filepath.Join(release, ".almoner", "bin", "authserver")))
	for name, script := range scripts {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755))
	}
}
