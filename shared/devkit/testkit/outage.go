package testkit

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Cut makes the database unavailable until the returned function is called.
func (d Database) Cut(t testing.TB) (restore func()) {
	t.Helper()
	allow := func(allowed string) {
		t.Helper()
		admin, err := pgx.Connect(t.Context(), d.Superuser)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = admin.Close(t.Context()) }()
		var name string
		err = admin.QueryRow(t.Context(), `select current_database()`).Scan(&name)
		if err == nil {
			_, err = admin.Exec(
				t.Context(),
				`alter database `+pgx.Identifier{name}.Sanitize()+` connection limit `+allowed,
			)
		}
		if err == nil {
			_, err = admin.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid()`)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	allow("0")
	return func() { allow("-1") }
}

// EndSessions ends every other session of the database, as a restart of PostgreSQL does, and returns once
// they have ended.
func (d Database) EndSessions(t testing.TB) {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), d.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	var ended bool
	err = admin.QueryRow(t.Context(), `select coalesce(bool_and(pg_terminate_backend(pid, 10000)), false)
		from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`).
		Scan(&ended)
	if err != nil || !ended {
		t.Fatalf("sessions ended: %t, %v", ended, err)
	}
}
