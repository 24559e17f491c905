package postgres_test

import (
	"testing"
	"time"

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
	l := newStoreTest(t)
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
	if err := l.Revoke(t.Context(), l.grant.ID, grant.ByUser, "user"); err != nil {
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
// their page.
func TestAdvance_IsHeapOnlyUpdate(t *testing.T) {
	// Old row versions stay while any older transaction runs. A backend that is connecting to any database
	// has one, which takes long on a busy machine: the test then tries another database.
	const within = 30 * time.Second
	l := newStoreTest(t)
	for end := time.Now().Add(within); ; l = newStoreTest(t) {
		grew, pages := growthOfManyAdvances(t, l)
		if grew == 0 && pages <= 2 {
			break
		}
		if time.Now().After(end) {
			t.Errorf(
				"indexes grew by %d bytes and one grant fills %d pages in the last database tried within %s",
				grew,
				pages,
				within,
			)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var indexed []string
	rows, err := l.fixture.Owner.Query(t.Context(), `
		select distinct a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid
		and a.attnum = any (i.indkey::int2[])
		where i.indrelid = 'account.grants'::regclass and a.attname in ('generation', 'refresh_hash', 'last_used_at')`)
	if err == nil {
		indexed, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(indexed) > 0 {
		t.Errorf("columns that every refresh changes are indexed: %v, %v", indexed, err)
	}
}

// growthOfManyAdvances refreshes one grant 300 times. It returns the number of bytes by which the indexes of
// the grants grew and the number of pages that the grants fill.
func growthOfManyAdvances(t *testing.T, l *storeTest) (grew, pages int) {
	t.Helper()
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	size := func() (indexes, pages int) {
		t.Helper()
		if err := l.fixture.Owner.QueryRow(t.Context(),
			`select pg_indexes_size('account.grants'),
				pg_relation_size('account.grants') / 8192`).Scan(&indexes, &pages); err != nil {
			t.Fatal(err)
		}
		return indexes, pages
	}
	before, _ := size()
	for generation := range uint32(300) {
		l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, generation+2, hash(byte(generation))))
	}
	after, pages := size()
	return after - before, pages
}
