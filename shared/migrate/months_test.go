package migrate

import (
	"testing"

	"github.com/pressly/goose/v3/lock"
)

// A constraint that another process may be using is not dropped.
func TestDropLeftoverConstraints_LeavesThoseOfAnotherMigration(t *testing.T) {
	url, connection := freshDatabase(t)
	do := func(sql string, args ...any) {
		t.Helper()
		if _, err := connection.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (exists bool) {
		t.Helper()
		err := connection.QueryRow(t.Context(), constraintIsLeft, "public.one", "one_earlier").Scan(&exists)
		if err != nil {
			t.Fatal(err)
		}
		return exists
	}
	do("create table public.one (x int constraint one_earlier check (x < 1))")
	do("select pg_advisory_lock($1)", lock.DefaultLockID) // as goose does
	if err := DropLeftoverConstraints(t.Context(), url, "public.one"); err == nil || !left() {
		t.Errorf("the constraint is left: %t, error %v", left(), err)
	}
	do("select pg_advisory_unlock($1)", lock.DefaultLockID)
	if err := DropLeftoverConstraints(t.Context(), url, "public.one"); err != nil || left() {
		t.Errorf("the constraint is left: %t, error %v", left(), err)
	}
}
