package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// emptyDatabase creates an empty database on the stack's server and returns its URL and a connection of its owner.
func emptyDatabase(t *testing.T, name string) (address string, connection *pgx.Conn) {
	t.Helper()
	running := shared(t)
	owner, err := url.Parse(running.DatabaseURL)
	must(t, err)
	administrator, err := pgx.Connect(t.Context(), running.Postgres.URL)
	must(t, err)
	_, err = administrator.Exec(t.Context(), "create database "+name+" owner "+owner.User.Username())
	must(t, err)
	owner.Path = "/" + name
	connection, err = pgx.Connect(t.Context(), owner.String())
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = connection.Close(ctx)
		if _, err := administrator.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
		_ = administrator.Close(ctx)
	})
	return owner.String(), connection
}

// content returns the names of all tables, indexes and functions of a database, and the rows of the version tables.
func content(t *testing.T, connection *pgx.Conn, versions ...string) string {
	t.Helper()
	queries := []string{
		"select c.oid::regclass::text || ' ' || c.relfilenode from pg_class c where " +
			"c.relnamespace::regnamespace::text not in ('pg_catalog', 'pg_toast', 'information_schema') order by 1",
		"select p.oid::regprocedure::text from pg_proc p where p.pronamespace::regnamespace::text not in " +
			"('pg_catalog', 'information_schema') order by 1",
	}
	for _, table := range versions {
		queries = append(queries, "select v::text from "+table+" v order by 1")
	}
	var all []string
	for _, sql := range queries {
		rows, _ := connection.Query(t.Context(), sql)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		all = append(all, lines...)
	}
	return strings.Join(all, "\n")
}

// Deployments use the exit status of `migrate --check` to see whether the schema matches the program
// (deploy/UPGRADING.md).
func TestMigrate_CheckReportsStatusWithoutChanges(t *testing.T) {
	t.Parallel()
	address, connection := emptyDatabase(t, "nobody_migrated")
	var versions []string
	for _, program := range []string{"authserver", "resourceapi"} {
		check := func(want int, words string) {
			t.Helper()
			before := content(t, connection, versions...)
			output, status := migrates(t, program, address, "--check")
			if status != want || !strings.Contains(output, words) {
				t.Errorf("%s migrate --check: %d %s, want %d and %q", program, status, output, want, words)
			}
			if after := content(t, connection, versions...); after != before {
				t.Errorf("%s migrate --check has changed the database from\n%s\nto\n%s", program, before, after)
			}
		}
		check(3, "_base.sql")
		if output, status := migrates(t, program, address); status != 0 {
			t.Fatalf("%s migrate: %d %s", program, status, output)
		}
		versions = append(versions, "goose_"+program)
		check(0, "up to date")
		_, err := connection.Exec(t.Context(),
			fmt.Sprintf("insert into goose_%s (version_id, is_applied) values (99999, true)", program))
		must(t, err)
		check(4, "99999")
	}
}

// The first migration of each service makes what the migrations before it made: an installation of the oldest release
// that is upgraded in place gets the schema of a new installation, with the same rows. One that lacks the last of these
// migrations is refused and stays as it is.
func TestMigrate_OldestUpgradeEqualsNewInstallation(t *testing.T) {
	t.Parallel()
	fresh, _ := emptyDatabase(t, "new_installation")
	upgraded, _ := emptyDatabase(t, "oldest_upgrade")
	for _, service := range []string{"authserver", "resourceapi"} {
		folder := service + "/internal/store/postgres/migrations"
		earlier := harness.CommittedFolder(t, migrate.OldestUpgrade, folder)
		names, err := filepath.Glob(filepath.Join(earlier, "*.sql"))
		must(t, err)
		slices.Sort(names)
		last := names[len(names)-1]
		hidden := filepath.Join(t.TempDir(), filepath.Base(last))
		must(t, os.Rename(last, hidden))
		before := migrate.Migrations{Files: os.DirFS(earlier), Table: "goose_" + service}
		_, err = before.Up(t.Context(), upgraded)
		must(t, err)
		output, status := migrates(t, service, upgraded)
		if status != 1 || !strings.Contains(output, migrate.OldestUpgrade) {
			t.Errorf("%s migrate, of an older database: %d %s", service, status, output)
		}
		must(t, os.Rename(hidden, last))
		_, err = before.Up(t.Context(), upgraded)
		must(t, err)
		for _, database := range []string{upgraded, fresh} {
			if output, status := migrates(t, service, database); status != 0 {
				t.Fatalf("%s migrate: %d %s", service, status, output)
			}
			if output, status := migrates(t, service, database, "--check"); status != 0 {
				t.Errorf("%s migrate --check: %d %s", service, status, output)
			}
		}
	}
	if got, want := dumped(t, upgraded), dumped(t, fresh); got != want {
		t.Errorf("the schemas differ:\n%s", firstDifference(got, want))
	}
}

// migrates runs the migrate command of a service.
func migrates(t *testing.T, service, database string, arguments ...string) (output string, status int) {
	t.Helper()
	arguments = append([]string{"migrate"}, arguments...)
	command := exec.CommandContext(t.Context(), harness.Program(t, service), arguments...)
	command.Env = []string{"ALMONER_DATABASE_URL=" + database}
	out, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), command.ProcessState.ExitCode()
}

var (
	// Newer versions of pg_dump write a random key.
	dumpKey = regexp.MustCompile(`(?m)^\\(un)?restrict .*$`)
	moment  = regexp.MustCompile(`'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[^']*'`)
)

// dumped returns the schema and the rows of a database as pg_dump writes them, without the times of rows.
func dumped(t *testing.T, database string) string {
	t.Helper()
	folders, environ, err := localstore.Tools(os.Getenv("ALMONER_TEST_TOOLS"))
	must(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(folders[0], "pg_dump"), "--inserts", database)
	command.Env = append(os.Environ(), environ...)
	out, err := command.Output()
	must(t, err)
	return moment.ReplaceAllString(dumpKey.ReplaceAllString(string(out), ""), "'moment'")
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(got, want string) string {
	wanted := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			return fmt.Sprintf("line %d: %q, want %q", i+1, line, wanted[min(i, len(wanted)-1)])
		}
	}
	return "lines are missing"
}
