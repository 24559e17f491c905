package browsertest

import (
	"github.com/jackc/pgx/v5"
)

// CutPostgres takes the database away from everybody, until the returned function gives it back.
func (s *Site) CutPostgres() (restore func()) {
	s.t.Helper()
	allow := func(allowed string) {
		s.t.Helper()
		admin, err := pgx.Connect(s.t.Context(), s.World.Database.Superuser)
		s.must(err)
		defer func() { _ = admin.Close(s.t.Context()) }()
		var name string
		s.must(admin.QueryRow(s.t.Context(), `select current_database()`).Scan(&name))
		_, err = admin.Exec(s.t.Context(), `alter database `+pgx.Identifier{name}.Sanitize()+` connection limit `+allowed)
		s.must(err)
		_, err = admin.Exec(s.t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid()`)
		s.must(err)
	}
	allow("0")
	return func() { allow("-1") }
}
