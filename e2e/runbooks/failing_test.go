package runbooks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// Ways in which a program of a backup fails. $REAL is the program.
const (
	failsAtOnce = `echo "no space left on device" >&2; exit 1`
	failsLater  = `"$REAL" "$@"; echo "the connection was lost" >&2; exit 1`
	cutsOff     = `"$REAL" "$@" || exit
for one; do case $one in --file=*) truncate -s -200 "${one#--file=}" ;; esac; done`
	damages = `rm "$MADE/global/pg_control"; : >"$MADE/global/pg_control"`
	// copies makes a base backup quickly: it links the files of the one that is there in $MADE.
	copies = `for one; do case $one in --pgdata=*) MADE=${one#--pgdata=} ;; esac; done
cp -al "${MADE%.part}" "$MADE" || exit
`
)

// replaced returns PATH with a program that runs lines of shell instead, and with further programs and their lines. It
// prints its version all the same.
func (o *operator) replaced(t *testing.T, program, lines string, further ...string) string {
	t.Helper()
	dir, err := localstore.TempDir("almoner-replaced-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	for one := range slices.Chunk(append(further, program, lines), 2) {
		script := "#!/bin/bash\nREAL='" + o.program(one[0]) + "'\n" +
			`[ "$1" = --version ] && exec "$REAL" --version` + "\n" + one[1] + "\n"
		must(t, os.WriteFile(filepath.Join(dir, one[0]), []byte(script), 0o755))
	}
	return "PATH=" + dir + ":" + o.path
}

// program returns the path of a program that the blocks run, or "" for a command of the shell.
func (o *operator) program(name string) string {
	for dir := range strings.SplitSeq(o.path, ":") {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// contents returns the inode of each file and folder of a folder, and the size and the time of the files, without the
// archive of the WAL.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "wal" {
			return filepath.SkipDir
		}
		info, err := entry.Info()
		must(t, err)
		fmt.Fprint(&all, path, " ", info.Sys().(*syscall.Stat_t).Ino) // a copy has the same size and time
		if entry.Type().IsRegular() {
			fmt.Fprint(&all, " ", info.Size(), " ", info.ModTime())
		}
		all.WriteString("\n")
		return nil
	}))
	return all.String()
}

// fastBase returns a program that makes base backups quickly, unless the program is that one.
func fastBase(program string) []string {
	if program == "pg_basebackup" {
		return nil
	}
	return []string{"pg_basebackup", copies}
}

// fails checks that a block fails, says what it has left unchanged, leaves the secrets, and does not say that it is
// complete.
func (o *operator) fails(t *testing.T, what, page, name string, further ...string) {
	t.Helper()
	secrets := contents(t, o.secrets)
	out, complaint, err := o.try(t, page, name, "", further...)
	if err == nil || strings.Contains(out, "Complete.") {
		t.Errorf("%s#%s, %s, succeeds:\n%s", page, name, what, harness.Redact(out))
	}
	if !strings.Contains(complaint, "unchanged") && !strings.Contains(complaint, "othing was") {
		t.Errorf("%s#%s, %s, says:\n%s", page, name, what, harness.Redact(complaint))
	}
	if contents(t, o.secrets) != secrets {
		t.Errorf("%s#%s, %s, changes secrets", page, name, what)
	}
}

// F90, F91: a program that fails, or whose output is cut off, costs no backup and no database.
func TestBackup_FailureLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	o.run(t, "backup.md", "archive-on")
	must(t, o.running.Postgres.Restart(ctx))
	o.Database.Reconnect()
	o.run(t, "backup.md", "base")
	o.run(t, "backup.md", "dump")
	o.run(t, "backup.md", "archived")
	before := contents(t, o.backups)
	unchanged := func(what string) {
		t.Helper()
		if now := contents(t, o.backups); now != before {
			t.Errorf("%s changes the backups:\n%s\n%s", what, before, now)
		}
	}
	for _, c := range []struct{ block, program, lines string }{
		{"dump", "pg_dump", failsAtOnce}, {"dump", "pg_dump", failsLater}, {"dump", "pg_dump", cutsOff},
		{"dump", "pg_dumpall", failsAtOnce}, {"dump", "pg_restore", failsLater},
		{"base", "pg_basebackup", failsAtOnce}, {"base", "pg_basebackup", copies + failsAtOnce},
		{"base", "pg_basebackup", copies + damages}, {"base", "pg_verifybackup", failsAtOnce},
	} {
		what := c.program + ": " + c.lines
		o.fails(t, what, "backup.md", c.block, o.replaced(t, c.program, c.lines, fastBase(c.program)...))
		unchanged(what)
	}
	interrupted := filepath.Join(o.backups, "base.part")
	must(t, os.Mkdir(interrupted, 0o700))
	o.chown(t, *o.postgresUser(t), interrupted)
	o.run(t, "backup.md", "base")

	users := o.Database.Text(t, "select count(*)::text from account.users")
	o.fails(t, "while the services run", "restore.md", "restore")
	o.stopServices()
	for _, lines := range []string{
		failsAtOnce,
		failsLater,
		`case $* in *dbname=*) exit 1 ;; *) exec "$REAL" "$@" ;; esac`,
		`"$REAL" "$@" || exit; case $* in *dbname=*) exit 1 ;; esac`,          // the data is there, but not complete
		`case $* in *dbname=*) kill -9 $PPID ;; *) exec "$REAL" "$@" ;; esac`, // the command is killed
		// a service starts before the restored database gets its name
		`"$REAL" "$@" || exit; case $* in *dbname=*) PGAPPNAME=almoner-late psql --dbname=service=almoner \
			--command='select pg_sleep(600)' >/dev/null 2>&1 &
			until psql --dbname=service=almoner --tuples-only --command="select 'late' from pg_stat_activity
				where application_name = 'almoner-late' and state = 'active'" | grep --quiet late
			do sleep 0.1; done ;; esac`,
	} {
		out, complaint, err := o.try(t, "restore.md", "restore", "", o.replaced(t, "pg_restore", lines))
		if err == nil || strings.Contains(out, "Complete.") ||
			(!strings.Contains(complaint, "nothing was restored") && !strings.Contains(lines, "kill")) {
			t.Errorf("pg_restore, %s: %v\n%s%s", lines, err, out, harness.Redact(complaint))
		}
		o.Database.Reconnect()
		if now := o.Database.Text(t, "select count(*)::text from account.users"); now != users {
			t.Errorf("%s users after a restore that failed, want %s", now, users)
		}
	}
	o.Database.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'almoner-late'`)

	moment := "MOMENT=" + o.Database.Text(t, "select clock_timestamp()::text")
	o.fails(t, "while PostgreSQL runs", "point-in-time.md", "recover", moment)
	o.running.Postgres.Stop()
	data := contents(t, o.data())
	for what, further := range map[string]string{
		"cp":                     o.replaced(t, "cp", failsLater),
		"pg_verifybackup":        o.replaced(t, "pg_verifybackup", failsAtOnce),
		"no archive":             "ARCHIVE=" + filepath.Join(o.backups, "none"),
		"no base backup":         "BACKUPS=" + o.etc,
		"before the base backup": "MOMENT=2026-01-01 00:00:00+00",
		"no folder":              "PGDATA=" + o.data() + ".none",
		"no zone":                "MOMENT=2026-01-01 00:00:00",
	} {
		o.fails(t, what, "point-in-time.md", "recover", moment, further)
		if _, err := os.Stat(o.data() + ".part"); err == nil || contents(t, o.data()) != data {
			t.Errorf("recover, %s, changes the data, or leaves a copy: %v", what, err)
		}
	}
	must(t, o.running.Postgres.Restart(ctx))
	o.startServices(t)
}

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
// something failed, does not say that it is complete, and leaves the secrets as they are. The caller then runs the
// block itself, which shows that nothing it needs was lost.
func (o *operator) failEach(t *testing.T, page, name, input string, further ...string) {
	t.Helper()
	one := blockOf(t, page, name)
	for _, program := range o.programsOf(one.text) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Long)
		lines := failsAtOnce
		if program == "cat" {
			lines = `head -c 2 "$1"; echo "input/output error" >&2; exit 1`
		}
		// A block that waits for something waits for a short time.
		path := o.replaced(t, program, lines, "sleep", "exit 0", "seq", "echo 1 2 3")
		with, secrets := append(slices.Clone(further), path), contents(t, o.secrets)
		out, complaint, err := o.shell(ctx, t, one.asPostgres, input, one.text, with...)
		what := page + "#" + name + ", while " + program + " fails,"
		switch {
		case ctx.Err() != nil:
			t.Errorf("%s does not end", what)
		case err == nil && complaint == "":
			t.Errorf("%s says nothing:\n%s", what, harness.Redact(out))
		case err == nil && strings.HasSuffix(strings.TrimSpace(out), "Complete."):
			t.Errorf("%s says that it is complete:\n%s", what, harness.Redact(out+complaint))
		case err == nil && strings.Contains(one.text, "keep "):
			t.Errorf("%s succeeds:\n%s", what, harness.Redact(out+complaint))
		case program != "rm" && contents(t, o.secrets) != secrets: // at its end, a block removes what it needs no more
			t.Errorf("%s changes secrets:\n%s", what, harness.Redact(out+complaint))
		}
		cancel()
	}
}

// F92: admin of the README has the settings that commands need.
func TestReadme_AdminHasItsSettings(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ws := o.NewWorkspace(t)
	clients := "clients:\n- id: 5b0f5f5e-0c1d-4d6b-8a4c-0d9d4c1a7e11\n  kind: connector\n  name: Assistant\n" +
		"  workspace: " + ws.Workspace.ID + "\n  redirectUris: [https://claude.ai/api/mcp/auth_callback]\n" +
		"  requiredPermissions: [" + harness.ReadProgrammes + "]\n  connectorPlatform: claude\n" +
		"  resource: " + o.BaseURL + "/mcp\n"
	for _, line := range []string{
		"admin apply --file=-", "admin users reset-link " + ws.Owner.Email, "admin users list", "admin keys list",
	} {
		out, complaint, err := o.shell(t.Context(), t, false, clients, line+"\n")
		if err != nil || out == "" {
			t.Errorf("%s: %v\n%s", line, err, harness.Redact(complaint))
		}
	}
}
