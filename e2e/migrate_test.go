package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
)

// emptyDatabase creates an empty database on the stack's server and returns its URL and a connection of its owner.
func emptyDatabase(t *testing.T) (address string, connection *pgx.Conn) {
	t.Helper()
	running := harness.Shared(t)
	owner, err := url.Parse(running.DatabaseURL)
	must(t, err)
	administrator, err := pgx.Connect(t.Context(), running.Postgres.URL)
	must(t, err)
	const name = "nobody_migrated"
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
	address, connection := emptyDatabase(t)
	var versions []string
	for _, program := range []string{"authserver", "resourceapi"} {
		run := func(arguments ...string) (output string, status int) {
			t.Helper()
			command := exec.CommandContext(t.Context(), harness.Program(t, program), arguments...)
			command.Env = []string{"ALMONER_DATABASE_URL=" + address}
			out, err := command.CombinedOutput()
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				t.Fatal(err)
			}
			return string(out), command.ProcessState.ExitCode()
		}
		check := func(want int, words string) {
			t.Helper()
			before := content(t, connection, versions...)
			if output, status := run("migrate", "--check"); status != want || !strings.Contains(output, words) {
				t.Errorf("%s migrate --check: %d %s, want %d and %q", program, status, output, want, words)
			}
			if after := content(t, connection, versions...); after != before {
				t.Errorf("%s migrate --check has changed the database from\n%s\nto\n%s", program, before, after)
			}
		}
		check(3, "00001_")
		if output, status := run("migrate"); status != 0 {
			t.Fatalf("%s migrate: %d %s", program, status, output)
		}
		versions = append(versions, "goose_"+program)
		check(0, "up to date")
		_, err := connection.Exec(
			t.Context(),
			fmt.Sprintf("insert into goose_%s (version_id, is_applied) values (99999, true)", program),
		)
		must(t, err)
		check(4, "99999")
	}
}
