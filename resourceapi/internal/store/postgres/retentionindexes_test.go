package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Due records are found by an index, so that an hourly run does not read whole tables. Only the table of forms is read
// as a whole, because each form has its own period.
func TestRetention_DueRecordsAreFoundByIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	r := newRetentionTest(t)
	tx := orFail(r.store.pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	// The tables are empty: without these settings, all plans cost the same.
	for _, setting := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		orFail(tx.Exec(t.Context(), "set local "+setting+" = off"))(t)
	}
	for _, k := range r.records.Kinds() {
		if k.Name == "finished jobs" { // River's table, which is short
			continue
		}
		rows, err := tx.Query(t.Context(), "explain (costs off) "+k.Due+" limit 500", time.Now().AddDate(-1, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		plan := orFail(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		text := strings.Join(plan, "\n")
		if strings.Contains(strings.ReplaceAll(text, "Seq Scan on forms", ""), "Seq Scan") ||
			!strings.Contains(text, "Index Cond") {
			t.Errorf("%s:\n%s", k.Name, text)
		}
	}
}
