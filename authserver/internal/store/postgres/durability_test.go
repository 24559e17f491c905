package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// asOwner runs SQL as the owner of the database.
func (l *storeTest) asOwner(statements ...string) {
	l.Helper()
	for _, sql := range statements {
		l.fixture.Exec(sql)
	}
}

// The setting is read at the commit itself: a deferred trigger runs after the statement, just before the
// transaction ends.
func TestAdvance_AloneCommitsAsynchronously(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.asOwner(
		`create table account.commits (generation integer, state text, waits text)`,
		`create function account.note_commit() returns trigger language plpgsql security definer as $$
		begin
			insert into account.commits values (new.generation, new.state, current_setting('synchronous_commit'));
			return null;
		end $$`,
		`create constraint trigger note_commit after insert or update on account.grants deferrable initially deferred
			for each row execute function account.note_commit()`,
	)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
	if err := l.Revoke(t.Context(), l.grant.Key(), grant.ByUser, "user", nil); err != nil {
		t.Fatal(err)
	}
	rows, err := l.fixture.Owner.Query(
		t.Context(),
		`select state || ' ' || generation || ' ' || waits from account.commits`,
	)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{"pending 0 on", "active 1 on", "active 2 off", "revoked 2 on"}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v %v, want %v", got, err, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("commit %d: %s, want %s", i, got[i], want[i])
		}
	}
}

// A refresh changes no indexed column, so that the indexes do not grow and old row versions are pruned with
// their page. All versions of this test fit into one page, because another transaction may prevent pruning.
func TestAdvance_IsHeapOnlyUpdate(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	const advances = 5
	for generation := range uint32(advances) {
		l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, generation+2, hash(byte(generation))))
	}
	l.Close() // a session that ends reports its statistics
	updates, heapOnly := 0, 0
	for updates < 1+advances {
		if err := l.fixture.Owner.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
			where relid = 'account.grants'::regclass`).Scan(&updates, &heapOnly); err != nil {
			t.Fatal(err)
		}
	}
	if heapOnly < advances {
		t.Errorf("%d of %d updates are heap-only, want %d", heapOnly, updates, advances)
	}
	var indexed []string
	rows, err := l.fixture.Owner.Query(t.Context(), `
		select distinct a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid
		and a.attnum = any (i.indkey::int2[])
		where i.indrelid = 'account.grants'::regclass
		and a.attname in ('generation', 'refresh_hash', 'last_used_at', 'renewed_at')`)
	if err == nil {
		indexed, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(indexed) > 0 {
		t.Errorf("columns that every refresh changes are indexed: %v, %v", indexed, err)
	}
}
