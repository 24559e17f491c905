package runbooks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// Ways in which a program of a backup fails. $REAL is the program.
const (
	failsAtOnce = `echo "no space left on device" >&2; exit 1`
	failsLater  = `"$REAL" "$@"; echo "the connection was lost" >&2; exit 1`
	cutsOff     = `"$REAL" "$@" || exit
for one; do case $one in --file=*) truncate -s -200 "${one#--file=}" ;; esac; done`
	damages = `truncate -s 0 "$MADE/global/pg_control"`
	// copies makes a base backup quickly: it copies the one that is there to $MADE.
	copies = `for one; do case $one in --pgdata=*) MADE=${one#--pgdata=} ;; esac; done
cp -a "${MADE%.part}" "$MADE" || exit
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

// contents returns the size and the time of each file of a folder, without the archive of the WAL.
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
		if err == nil && entry.Type().IsRegular() {
			_, err = fmt.Fprintln(&all, path, info.Size(), info.ModTime())
		}
		return err
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

// fails checks that a block fails, says what it has left unchanged, and does not say that it is complete.
func (o *operator) fails(t *testing.T, what, page, name string, further ...string) {
	t.Helper()
	out, complaint, err := o.try(t, page, name, "", further...)
	if err == nil || strings.Contains(out, "Complete.") {
		t.Errorf("%s#%s, %s, succeeds:\n%s", page, name, what, harness.Redact(out))
	}
	if !strings.Contains(complaint, "unchanged") && !strings.Contains(complaint, "othing was") {
		t.Errorf("%s#%s, %s, says:\n%s", page, name, what, harness.Redact(complaint))
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
	if os.Geteuid() == 0 {
		o.chown(t, *o.postgresUser(t), interrupted)
	}
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
			--command='select pg_sleep(5)' >/dev/null 2>&1 & sleep 1 ;; esac`,
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
