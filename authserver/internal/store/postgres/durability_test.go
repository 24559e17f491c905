package postgres_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

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
	indexed := l.texts(`select distinct a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid
		and a.attnum = any (i.indkey::int2[])
		where i.indrelid = 'account.grants'::regclass
		and a.attname in ('generation', 'refresh_hash', 'last_used_at', 'renewed_at')`)
	if len(indexed) > 0 {
		t.Errorf("columns that every refresh changes are indexed: %v", indexed)
	}
}
