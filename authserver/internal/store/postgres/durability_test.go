package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// asOwner runs SQL on a connection of the owner's own.
func (l *ledger) asOwner(statements ...string) {
	l.Helper()
	for _, sql := range statements {
		l.world.Exec(sql)
	}
}

// How a commit waits for the disk is looked up at the commit itself: a deferred trigger runs when the statement is over
// and the transaction is about to end.
func TestOnlyAnAdvanceCommitsWithoutWaitingForTheDisk(t *testing.T) {
	l := newLedger(t)
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
	l.wantFence(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	l.wantFence(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
	if err := l.Revoke(t.Context(), l.grant.ID, grant.ByUser, "user"); err != nil {
		t.Fatal(err)
	}
	rows, err := l.world.Owner.Query(
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

// A refresh changes no indexed column, so that no index grows by it and the row's old versions go with the page they
// are on.
func TestAnAdvanceIsAHeapOnlyUpdate(t *testing.T) {
	// Old versions stay while any transaction is older, and a backend that is about to enter some database has one,
	// which takes long on a busy machine: another database then.
	const within = 30 * time.Second
	l := newLedger(t)
	for end := time.Now().Add(within); ; l = newLedger(t) {
		grew, pages := growthOfManyAdvances(t, l)
		if grew == 0 && pages <= 2 {
			break
		}
		if time.Now().After(end) {
			t.Errorf(
				"the indexes grew by %d bytes and one grant fills %d pages, in the last of the databases of %s",
				grew,
				pages,
				within,
			)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var indexed []string
	rows, err := l.world.Owner.Query(t.Context(), `
		select distinct a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[])
		where i.indrelid = 'account.grants'::regclass and a.attname in ('generation', 'refresh_hash', 'last_used_at')`)
	if err == nil {
		indexed, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(indexed) > 0 {
		t.Errorf("indexed although every refresh changes it: %v, %v", indexed, err)
	}
}

// growthOfManyAdvances refreshes one grant 300 times. It returns by how many bytes the indexes of the grants grew and
// how many pages they fill then.
func growthOfManyAdvances(t *testing.T, l *ledger) (grew, pages int) {
	t.Helper()
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantFence(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	size := func() (indexes, pages int) {
		t.Helper()
		if err := l.world.Owner.QueryRow(t.Context(),
			`select pg_indexes_size('account.grants'), pg_relation_size('account.grants') / 8192`).Scan(&indexes, &pages); err != nil {
			t.Fatal(err)
		}
		return indexes, pages
	}
	before, _ := size()
	for generation := range uint32(300) {
		l.wantFence(grant.Updated)(l.advance(t.Context(), l.grant.ID, generation+2, hash(byte(generation))))
	}
	after, pages := size()
	return after - before, pages
}
