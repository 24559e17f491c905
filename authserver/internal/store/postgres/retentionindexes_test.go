package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Due records are found by an index, so that an hourly run does not read whole tables. The tables in small have few
// rows.
func TestRetention_DueRecordsAreFoundByIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	l := ownStoreTest(t)
	small := []string{
		"removed signing keys", "ended invitations", "deleted clients", "password resets", "requests for access",
		"changes of e-mail addresses", "ended sign-ins",
	}
	tx, err := l.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "set local enable_seqscan = off"); err != nil {
		t.Fatal(err)
	}
	for _, k := range l.Retention(keepAll()).Kinds() {
		if slices.Contains(small, k.Name) {
			continue
		}
		rows, err := tx.Query(t.Context(), "explain (costs off) "+k.Due+" limit 500", time.Now().AddDate(-1, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(plan, "\n")
		if strings.Contains(text, "Seq Scan") || !strings.Contains(text, "Index Cond") {
			t.Errorf("%s:\n%s", k.Name, text)
		}
	}
}
