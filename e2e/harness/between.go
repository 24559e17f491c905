package harness

import (
	"context"
	"testing"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Change is a statement that withdraws what allows a request. It must affect at least one row.
type Change struct {
	SQL  string
	Args []any
}

// Between makes changes between the check and the write of a request. The changes are made in a transaction that is
// open when the request starts, so that the checks of the request see the state before them. The transaction is
// committed as soon as the request waits for a row that it has locked. A request that ties its write to its check
// waits for the commit and then finds that it is no longer allowed. A request that does not tie them waits for
// nothing and ends before the commit, which shows in what it wrote.
func (w *Database) Between(t testing.TB, request func(), changes ...Change) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := w.rows.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for _, change := range changes {
		if tag, err := tx.Exec(ctx, change.SQL, change.Args...); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %d rows, %v", change.SQL, tag.RowsAffected(), err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); request() }()
	w.awaitWaiter(t, tx.Conn().PgConn().PID(), done)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	<-done
}

// While runs do while a request waits for a row that the SQL has locked. The transaction of the SQL is rolled back.
func (w *Database) While(t testing.TB, request, do func(), sql string, args ...any) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := w.rows.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	done := make(chan struct{})
	go func() { defer close(done); request() }()
	w.awaitWaiter(t, tx.Conn().PgConn().PID(), done)
	do()
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	<-done
}

// awaitWaiter returns when another session waits for a lock of the session pid, or when done is closed.
func (w *Database) awaitWaiter(t testing.TB, pid uint32, done <-chan struct{}) {
	t.Helper()
	await.True(t, "the request waits for the change or ends", func() bool {
		select {
		case <-done:
			return true
		default:
		}
		return w.Count(
			t,
			`select count(*) from pg_stat_activity where $1::int = any (pg_blocking_pids(pid))`,
			int32(pid),
		) > 0
	})
}

// Replaces marks a personal access token as the replacement of a former one.
func (w *Database) Replaces(t testing.TB, token, former string) {
	t.Helper()
	w.Exec(t, `update account.personal_access_tokens new set replaces_id = old.id
				from account.personal_access_tokens old where new.hash = $1 and old.hash = $2`,
		credential.Hash(token), credential.Hash(former))
}
