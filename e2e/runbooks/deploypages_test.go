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
// The call $FAILS fails. It starts no further program: there are thousands of calls.
const recorder = `#!/bin/sh
name=${0##*/} number=1
set -C # a call that takes the same number at the same time does not get it
until { true >"$CALLS/$name.$number"; } 2>/dev/null; do number=$((number+1)); done
set +C
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
	bin := writePrograms(t)
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
						tried.Add(tryWithFailures(t, bin, lines))
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
func tryWithFailures(t *testing.T, bin, lines string) int64 {
	t.Helper()
	_, complaint, calls, _ := runRecorded(t, bin, t.TempDir(), lines, "")
	if strings.Contains(complaint, "not found") {
		t.Errorf("%s\n%s", complaint, lines)
	}
	for _, call := range calls {
		if strings.HasPrefix(call, "git.") || strings.HasPrefix(call, background+".") {
			continue // the commit is only a label; the next command waits for the receiver in the background
		}
		dir := t.TempDir()
		out, complaint, _, after := runRecorded(t, bin, dir, lines, call)
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
		out, complaint, _, _ = runRecorded(t, bin, dir, lines, "")
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
func runRecorded(t *testing.T, bin, dir, lines, fails string) (out, complaint string, calls []string, after string) {
	t.Helper()
	release := filepath.Join(dir, "release")
	if _, err := os.Stat(release); err != nil {
		writeRelease(t, bin, dir, release)
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
		"PATH=" + bin, "HOME=" + dir, "LANG=C.UTF-8", "CALLS=" + record, "FAILS=" + fails,
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
		if strings.Contains(entry.Name(), ".") {
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

// writeRelease writes the files that the pages expect.
func writeRelease(t *testing.T, bin, dir, release string) {
	t.Helper()
	for _, folder := range []string{
		"release", "etc/systemd/system", "etc/caddy", "etc/nginx", "etc/almoner/secrets", "usr/local/bin", "usr/share",
		"release/.almoner/bin",
	} {
		must(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	deploy, err := filepath.Abs("../../deploy")
	must(t, err)
	links := map[string]string{
		"deploy": deploy, "almoner-0.1.0": deploy, ".almoner/bin/authserver": filepath.Join(bin, "authserver"),
	}
	for _, folder := range []string{"compose", "gateway", "kubernetes", "runbooks", "systemd"} {
		links[folder] = filepath.Join(deploy, folder)
	}
	for name, target := range links {
		must(t, os.Symlink(target, filepath.Join(release, name)))
	}
	files := map[string]string{"release/.almoner/demo.json": "value\n"}
	for _, name := range []string{"authserver-0.1.0-linux-amd64", "resourceapi-0.1.0-linux-amd64", "redis-password"} {
		files[name], files["release/"+name] = "content", "content"
	}
	for _, unit := range []string{"authserver.service", "resourceapi.service"} { // of an older installation
		files["etc/systemd/system/"+unit] = ""
	}
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// writePrograms writes a program for each that the pages call, which records its calls, and returns their folder.
func writePrograms(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	scripts := map[string]string{"redis-cli": "while read -r command; do echo OK; done"}
	for name, answer := range fakes {
		scripts[name] = "echo '" + answer + "'"
	}
	for _, name := range append([]string{"install", "mkdir", "cp", "mv", "rm"}, filters...) {
		path, err := exec.LookPath(name)
		must(t, err)
		scripts[name] = "exec " + path + ` "$@"`
	}
	for name, lines := range scripts {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(recorder+lines+"\n"), 0o755))
	}
	return bin
}
