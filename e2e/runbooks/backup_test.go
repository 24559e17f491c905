package runbooks

import (
	"context"
	"crypto/sha256"
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
	damages = `"$REAL" "$@" || exit
for one; do case $one in --pgdata=*) truncate -s 0 "${one#--pgdata=}/global/pg_control" ;; esac; done`
)

// replaced returns PATH with a program that runs lines of shell instead. It prints its version all the same.
func (o *operator) replaced(t *testing.T, program, lines string) string {
	t.Helper()
	dir, err := localstore.TempDir("almoner-replaced-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	at := slices.IndexFunc(o.environ, func(setting string) bool { return strings.HasPrefix(setting, "PATH=") })
	_, path, _ := strings.Cut(o.environ[at], "=")
	script := "#!/bin/bash\nREAL=$(PATH='" + path + "' command -v " + program + ")\n" +
		`[ "$1" = --version ] && exec "$REAL" --version` + "\n" + lines + "\n"
	must(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	return "PATH=" + dir + ":" + path
}

// contents returns a digest of each file of a folder, without the archive of the WAL.
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
		var digest [sha256.Size]byte
		if entry.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			digest = sha256.Sum256(content)
		}
		_, err = fmt.Fprintf(&all, "%s %x\n", path, digest[:8])
		return err
	}))
	return all.String()
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
		{"base", "pg_basebackup", failsAtOnce}, {"base", "pg_basebackup", failsLater},
		{"base", "pg_basebackup", damages}, {"base", "pg_verifybackup", failsAtOnce},
	} {
		what := c.program + ": " + c.lines
		o.fails(t, what, "backup.md", c.block, o.replaced(t, c.program, c.lines))
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
