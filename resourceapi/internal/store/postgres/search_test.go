package postgres

import (
	"errors"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestIndexSearches_ReplacesInvalidIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the indexes of shards have other names")
	t.Parallel()
	w := postgrestest.New(t)
	w.Exec("create index programmes_search on resource.programmes (name)")
	superuser := postgrestest.Connect(t, w.Database.Superuser)
	orFail(superuser.Exec(t.Context(), "update pg_index set indisvalid = false where indexrelid = "+
		"'resource.programmes_search'::regclass"))(t)
	if created, err := IndexSearches(t.Context(), w.Database.Owner); !created || err != nil {
		t.Errorf("created %t, %v", created, err)
	}
	w.Wants(1, "select count(*) from pg_index join pg_class c on c.oid = indexrelid where c.relname = "+
		"'programmes_search' and indisvalid and relam <> 403")
}

// A database whose owner may not create extensions has no search index, and searches still work.
func TestIndexSearches_SearchesWorkWithoutTrigrams(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	superuser := postgrestest.Connect(t, w.Database.Superuser)
	orFail(superuser.Exec(t.Context(),
		"do $$ begin execute format('alter database %I owner to current_user', current_database()); end $$"))(t)
	if created, err := IndexSearches(t.Context(), w.Database.Owner); created || !errors.Is(err, ErrNoTrigrams) {
		t.Errorf("created %t, %v", created, err)
	}
	store := openWith(t, w, Limits{Connections: 4, Wait: testkit.StoreWait, Search: testkit.StoreWait})
	workspaceID := w.Workspace()
	w.Programmes(workspaceID, 3)
	second := programme.Filter{Search: "programme 2"}
	page, err := store.Page(t.Context(), programme.Query{
		WorkspaceID: workspaceID,
		Limit:       50,
		Filter:      second,
		Into:        newList,
	})
	if err != nil || len(listed(page)) != 1 {
		t.Errorf("%d programmes, %v", len(listed(page)), err)
	}
}

// The index converts the text and the pattern to lower case by the database's locale. If the text contains the
// pattern, the converted text must contain the converted pattern, whatever letters surround it.
func TestFolded_LowerCaseDoesNotDependOnContext(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for _, locale := range []string{"el", "tr", "lt", "und"} {
		collate := ` collate "` + locale + `-x-icu"`
		for _, pattern := range []string{"ΟΔΟΣ", "I", "Į", "J", "ẞ", "İ", "straße"} {
			for _, around := range [][2]string{{"", "α"}, {"α", ""}, {"α", "\u0307"}, {"", "\u0300"}, {"x ", " y"}} {
				n := w.Count(
					"select strpos(lower("+folded("$1::text")+collate+"), lower("+folded("$2::text")+collate+"))",
					around[0]+pattern+around[1],
					pattern,
				)
				if n == 0 {
					t.Errorf("%s: %q is not found in %q", locale, pattern, around[0]+pattern+around[1])
				}
			}
		}
	}
}
