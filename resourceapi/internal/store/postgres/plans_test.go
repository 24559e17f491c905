package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// A filled database has so many records that the plans of Postgres show what a statement reads. Tests change nothing.
type filled struct {
	*postgrestest.Fixture
	workspaceID uuid.UUID // with most of the records
	form        uuid.UUID // of submissions
}

// withProgrammes has 20,000 programmes, one for each second from 9:00 on. Those of the first five minutes were changed
// a day later, and those of the first half hour are archived: a list of them that started at the newest would read all
// the others first.
var withProgrammes = testkit.Once(newProgrammes)

func newProgrammes(t testing.TB) filled {
	t.Helper()
	w := postgrestest.New(t)
	f := filled{Fixture: w, workspaceID: w.Workspace()}
	w.Exec("alter table resource.programmes disable trigger user")
	for range 4 {
		w.Programmes(w.Workspace(), 3000)
	}
	w.Programmes(f.workspaceID, 20_000)
	w.Exec("update resource.programmes set status = 'archived' where created_at < '2026-03-01 09:30:00+00'")
	w.Exec(`update resource.programmes set updated_at = created_at + interval '1 day'
		where created_at < '2026-03-01 09:05:00+00'`)
	w.Exec("analyze resource.programmes")
	return f
}

// withSubmissions has 5,000 submissions to each of three forms, one for each second of a day.
var withSubmissions = testkit.Once(func(t testing.TB) filled {
	w := postgrestest.New(t)
	f := filled{Fixture: w, workspaceID: w.Workspace()}
	for range 3 {
		f.form = addForm(w, f.workspaceID)
	}
	w.Exec(`insert into resource.supporters (id, tenant_id) values (gen_random_uuid(), $1)`, f.workspaceID)
	w.Exec("alter table resource.submissions disable trigger user")
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at,
			status, finished_at, supporter_id)
		select gen_random_uuid(), $1, f.id, gen_random_uuid(), '{}', '[]', false,
			'2026-03-01T00:00:00Z'::timestamptz + make_interval(secs => n), s.status,
			case when s.status <> 'accepted' then '2026-06-01T00:00:00Z'::timestamptz + make_interval(secs => n) end,
			case when s.status = 'processed' then (select id from resource.supporters) end
		from resource.forms f, generate_series(1, 5000) n, lateral (select case
			when n % 50 = 3 then 'accepted' when n % 50 = 7 then 'rejected' else 'processed' end as status) s`,
		f.workspaceID)
	w.Exec("analyze resource.submissions")
	return f
})

// P3, and its cost: a page is read from the index in order, however many programmes there are.
func TestPage_UsesIndexWithoutSorting(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	f := withProgrammes(t)
	store := open(t, f.Fixture)
	middle := &rest.Position{CreatedAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), ID: uuid.New()}
	archived, byStatus := programme.Filter{Status: programme.Archived}, "programmes_page_by_status"
	for name, c := range map[string]struct {
		query programme.Query
		index string
	}{
		"first page":           {programme.Query{Limit: 200}, "programmes_page"},
		"a page in the middle": {programme.Query{Limit: 50, After: middle}, "programmes_page"},
		"a status":             {programme.Query{Limit: 50, Filter: archived}, byStatus},
		"its next page":        {programme.Query{Limit: 50, After: middle, Filter: archived}, byStatus},
	} {
		t.Run(name, func(t *testing.T) {
			c.query.WorkspaceID = f.workspaceID
			text, args := pageSQL(c.query)
			checkPlans(t, store, text, args, "Index Scan using "+c.index+" ", "Sort", "Seq Scan", "Filter:")
		})
	}
}

// A poll costs only what it finds, however many programmes there are, including old ones that were changed.
func TestUpdatedSince_UsesIndexes(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	f := withProgrammes(t)
	store := open(t, f.Fixture)
	march := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 3, day, hour, minute, second, 0, time.UTC)
	}
	after := &rest.Position{CreatedAt: march(1, 9, 4, 0), ID: uuid.New(), Until: march(2, 10, 0, 0)}
	for name, c := range map[string]struct {
		since time.Time
		after *rest.Position
		found int
		wants string // of the plan
	}{
		"everything":         {since: march(-30, 0, 0, 0), found: 50, wants: "never executed"},
		"what was changed":   {since: march(2, 9, 0, 0), found: 50, wants: "programmes_changed"},
		"its next page":      {since: march(2, 9, 0, 0), after: after, found: 50, wants: "programmes_changed"},
		"the newest changes": {since: march(2, 9, 4, 50), found: 10, wants: "programmes_changed"},
		"nothing":            {since: march(3, 0, 0, 0), wants: "programmes_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			query := programme.Query{WorkspaceID: f.workspaceID, Limit: 50, After: c.after, Into: newList}
			query.Filter.UpdatedSince = c.since
			found(t, store, query, c.found)
			text, args := pageSQL(query)
			checkPlans(t, store, text, args, c.wants, "Seq Scan", "Rows Removed by Filter: ")
		})
	}
}

// F13: a search reads only matching programmes from the index, not every programme of the workspace.
func TestSearch_UsesIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	f := newProgrammes(t) // without the index, which the plans of other tests do not expect
	store := openWith(t, f.Fixture, Limits{Connections: 4, Wait: testkit.StoreWait, Search: testkit.StoreWait})
	for i, want := range []bool{true, false} { // created once
		if created, err := IndexSearches(t.Context(), f.Database.Owner); created != want || err != nil {
			t.Fatalf("try %d: created %t, %v", i, created, err)
		}
	}
	for text, want := range map[string]int{"Walsall": 0, "programme 19999": 1, "100%": 0} {
		query := searching(f.workspaceID, text)
		sql, args := pageSQL(query)
		const index = "Bitmap Index Scan on programmes_search"
		if plan := explained(t, store.searches, sql, args); !strings.Contains(plan, index) {
			t.Errorf("%s: %s", text, plan)
		}
		found(t, store, query, want)
	}
}

// searching is a search for programmes.
func searching(workspaceID uuid.UUID, text string) programme.Query {
	filter := programme.Filter{Search: text}
	return programme.Query{WorkspaceID: workspaceID, Limit: 50, Filter: filter, Into: newList}
}

// found checks how many programmes are on a page.
func found(t *testing.T, store *Store, query programme.Query, want int) {
	t.Helper()
	if page, err := store.Page(t.Context(), query); err != nil || len(listed(page)) != want {
		t.Errorf("%+v: got %d programmes, %v, want %d", query.Filter, len(listed(page)), err, want)
	}
}

// A list filtered by status or time reads only matching rows, even if the form has many submissions.
func TestSubmissions_FiltersUseIndexes(t *testing.T) {
	t.Parallel()
	f := withSubmissions(t)
	store := open(t, f.Fixture)
	one := time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		filter rest.Filter
		wants  string // of the plan
	}{
		"accepted":  {rest.Filter{Status: "accepted"}, "submissions_waiting"},
		"rejected":  {rest.Filter{Status: "rejected"}, "submissions_rejected"},
		"processed": {rest.Filter{Status: "processed"}, "submissions_page"},
		"time":      {rest.Filter{CreatedSince: one, CreatedBefore: one.Add(time.Minute)}, "submissions_page"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []any{f.workspaceID, f.form, 51}
			add := func(value any) string {
				args = append(args, value)
				return fmt.Sprintf("$%d", len(args))
			}
			text := "select " + submissionColumns +
				" from resource.submissions s where s.tenant_id = $1 and s.form_id = $2" +
				filterSQL(c.filter, "s.", add) + " order by s.created_at desc, s.id desc limit $3"
			checkPlans(t, store, text, args, c.wants, "Seq Scan")
		})
	}
}

// checkPlans checks that the plan for these arguments, and the plan that is kept, have a part and none of the others.
func checkPlans(t *testing.T, store *Store, text string, args []any, wants string, never ...string) {
	t.Helper()
	for which, plan := range map[string]string{
		"the plan for these arguments": explained(t, store.pool, text, args),
		"the plan that is kept":        keptPlan(t, store, text, args),
	} {
		if plan == "" {
			continue
		}
		plan = strings.ReplaceAll(plan, "Seq Scan on submissions_9999", "") // which has no rows
		if !strings.Contains(plan, wants) {
			t.Errorf("%s has no %q: %s", which, wants, plan)
		}
		for _, part := range never {
			if strings.Contains(plan, part) {
				t.Errorf("%s has %q: %s", which, part, plan)
			}
		}
	}
}

func explained(t *testing.T, db querier, text string, args []any) string {
	t.Helper()
	lines := orFail(allRows(t.Context(), db, pgx.RowTo[string], "explain (analyze, buffers) "+text, args...))(t)
	return strings.Join(lines, "\n")
}

// keptPlan returns the generic plan that Postgres uses for a statement from the sixth execution on, or "" if it plans
// each execution.
func keptPlan(t *testing.T, store *Store, text string, args []any) string {
	t.Helper()
	connection := orFail(store.pool.Acquire(t.Context()))(t)
	defer connection.Release()
	orFail(connection.Conn().Prepare(t.Context(), "page", text))(t)
	defer func() { _ = connection.Conn().Deallocate(context.WithoutCancel(t.Context()), "page") }()
	for range 8 {
		orFail(connection.Exec(t.Context(), "page", args...))(t)
	}
	var kept int
	const generic = `select generic_plans from pg_prepared_statements where name = 'page'`
	must(t, connection.QueryRow(t.Context(), generic).Scan(&kept))
	if kept == 0 {
		return ""
	}
	var literals []string
	for _, arg := range args {
		if at, ok := arg.(time.Time); ok {
			arg = at.Format(time.RFC3339Nano)
		}
		literals = append(literals, fmt.Sprintf("'%v'", arg))
	}
	return explained(t, connection, "execute page("+strings.Join(literals, ", ")+")", nil)
}

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
	found(t, store, searching(workspaceID, "programme 2"), 1)
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
