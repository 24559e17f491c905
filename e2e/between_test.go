package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A withdrawal is a statement that withdraws what allows a request. It must affect at least one row.
type withdrawal struct {
	SQL  string
	Args []any
}

// inBetween makes changes between the check and the write of a request. The changes are made in a transaction that is
// open when the request starts, so that the checks of the request see the state before them. The transaction is
// committed as soon as the request waits for a row that it has locked. A request that ties its write to its check
// waits for the commit and then finds that it is no longer allowed. A request that does not tie them waits for
// nothing and ends before the commit, which shows in what it wrote.
func inBetween(t testing.TB, d *harness.Database, request func(), changes ...withdrawal) {
	t.Helper()
	whileLocked(t, d, request, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, changes...)
}

// meanwhile runs do while a request waits for a row that the SQL has locked. The transaction of the SQL is rolled back.
func meanwhile(t testing.TB, d *harness.Database, request, do func(), sql string, args ...any) {
	t.Helper()
	whileLocked(t, d, request, func(ctx context.Context, tx pgx.Tx) error {
		do()
		return tx.Rollback(ctx)
	}, withdrawal{sql, args})
}

// whileLocked makes changes, starts the request, and calls end when the request waits for a row that the changes have
// locked, or has ended.
func whileLocked(
	t testing.TB, d *harness.Database, request func(), end func(context.Context, pgx.Tx) error, changes ...withdrawal,
) {
	t.Helper()
	ctx, tx := context.WithoutCancel(t.Context()), d.Begin(t)
	for _, change := range changes {
		if tag, err := tx.Exec(ctx, change.SQL, change.Args...); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %d rows, %v", change.SQL, tag.RowsAffected(), err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); request() }()
	pid := int32(tx.Conn().PgConn().PID())
	await.True(t, "the request waits for the change or ends", func() bool {
		select {
		case <-done:
			return true
		default:
		}
		return d.Count(t, `select count(*) from pg_stat_activity where $1::int = any (pg_blocking_pids(pid))`, pid) > 0
	})
	must(t, end(ctx, tx))
	<-done
}

// replaces marks a personal access token as the replacement of a former one.
func replaces(t testing.TB, d *harness.Database, token, former string) {
	t.Helper()
	d.Exec(t, `update account.personal_access_tokens new set replaces_id = old.id
		from account.personal_access_tokens old where new.hash = $1 and old.hash = $2`,
		credential.Hash(token), credential.Hash(former))
}
