package postgres

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

const submissionMonths = "select count(*) from account.months_of('resource.submissions')"

// pastSubmissionMonths replaces submissions_0000 by the partitions of this month and the 6 before it, and makes the
// next ones.
func pastSubmissionMonths(w *postgrestest.Fixture) {
	w.Exec("drop table resource.submissions_0000")
	w.Exec(`do $$ declare month timestamptz; name text; begin
		for month in
			select (date_trunc('month', now() at time zone 'UTC') - make_interval(months => n)) at time zone 'UTC'
			from generate_series(-1, 6) n loop
			continue when exists (select from account.months_of('resource.submissions') p where p.starts <= month);
			name := 'submissions_' || to_char(month at time zone 'UTC', 'YYYY_MM');
			execute format('create table resource.%I (like resource.submissions_9999 including all)', name);
			execute format('alter table resource.submissions attach partition resource.%I for values from (%L) to (%L)',
				name, month, (month at time zone 'UTC' + interval '1 month') at time zone 'UTC');
		end loop;
	end $$`)
	w.Exec("select resource.make_submission_months()")
}

// months is a database with past months, for tests that look at their own workspaces only.
var months = testkit.Once(func(t testing.TB) *postgrestest.Fixture {
	w := postgrestest.New(t)
	pastSubmissionMonths(w)
	return w
})

func withMonths(t *testing.T) *postgrestest.Fixture {
	t.Helper()
	testkit.SkipIfDistributed(t, "partitions are created by hand")
	return months(t).For(t)
}

// addDaily adds a processed submission for each of the last days.
func addDaily(w *postgrestest.Fixture, workspaceID, form uuid.UUID, days int) {
	supporter := uuid.New()
	w.Exec("insert into resource.supporters (id, tenant_id) values ($1, $2)", supporter, workspaceID)
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, status,
			finished_at, supporter_id, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), '{}', '[]', false, 'processed', t, $3, t
		from generate_series(0, $4::integer - 1) n, lateral (select now() - make_interval(days => n) as t) at`,
		workspaceID, form, supporter, days)
}

// addForm adds a form without fields.
func addForm(w *postgrestest.Fixture, workspaceID uuid.UUID) uuid.UUID {
	form := uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}')`, form, workspaceID)
	return form
}

// addSubmission adds a submission, so long ago, that no worker has processed.
func addSubmission(w *postgrestest.Fixture, workspaceID, form, id uuid.UUID, ago string) {
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		values ($1, $2, $3, $1, '{}', '[]', false, now() - $4::interval)`, id, workspaceID, form, ago)
}

// A token is used once, also by concurrent requests at the end of a month.
func TestSubmissionMonths_TokenIsUsedOnceAtTurnOfMonth(t *testing.T) {
	t.Parallel()
	w := withMonths(t)
	workspaceID := w.Workspace()
	form, token := addForm(w, workspaceID), uuid.New()
	var inserted, refused, turn atomic.Int64
	// The list is locked: the first submission has the last microsecond of a month, the others come after it.
	inTurn := func() time.Time {
		return month(time.Now(), 0).Add(time.Duration(turn.Add(1)-2) * time.Microsecond)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			connection, err := pgx.Connect(t.Context(), w.Database.Resourceapi)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
			err = pgx.BeginFunc(t.Context(), connection, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "select resource.next_moment($1, $2, 1)", workspaceID, form.String())
				if err != nil {
					return err
				}
				_, err = tx.Exec(t.Context(), `insert into resource.submissions
					(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
					values ($1, $2, $3, $4, '{}', '[]', false, $5)`, uuid.New(), workspaceID, form, token, inTurn())
				return err
			})
			switch {
			case err == nil:
				inserted.Add(1)
			case refusedBy(err, uniqueViolation, "submissions"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if inserted.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d submissions were inserted with a token, %d refused", inserted.Load(), refused.Load())
	}
	// On the first day, too, a batch in which a token comes twice stores one of them.
	token = uuid.New()
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, $3, '{}', '[]', false, $4::timestamptz + n * interval '1 microsecond'
		from generate_series(1, 2) n on conflict do nothing`, workspaceID, form, token, month(time.Now(), 0))
	w.Wants(1, "select count(*) from resource.submissions where token_id = $1", token)
}

// A list and its pages have the submissions of all months in order, whatever the limit and the filter.
func TestSubmissionMonths_ListsAreInOrder(t *testing.T) {
	t.Parallel()
	w := withMonths(t)
	store, workspaceID := open(t, w), w.Workspace()
	form, other := addForm(w, workspaceID), addForm(w, workspaceID)
	addDaily(w, workspaceID, form, 150)
	addDaily(w, workspaceID, other, 20)
	now := time.Now()
	recent := w.Count("select count(*) from resource.submissions where form_id = $1 and created_at >= $2", form,
		month(now, -1))
	for name, filter := range map[string]rest.Filter{
		"all":       {},
		"processed": {Status: "processed"},
		"rejected":  {Status: "rejected"},
		"since":     {CreatedSince: now.AddDate(0, 0, -100)},
		"before":    {CreatedBefore: now.AddDate(0, 0, -70)},
		"between":   {CreatedSince: now.AddDate(0, 0, -100), CreatedBefore: now.AddDate(0, 0, -70)},
		"recent":    {CreatedSince: now.AddDate(0, 0, -3)},
		"updated":   {UpdatedSince: now.AddDate(0, 0, -90)},
		"none":      {CreatedBefore: now.AddDate(-5, 0, 0)},
	} {
		for _, limit := range []int{7, recent - 1, recent, recent + 1, rest.MaxLimit} {
			want := matching(t, store, form, filter)
			var found []uuid.UUID
			r := rest.Range{Limit: limit, Filter: filter}
			for more := true; more; {
				page, end := submissions(t, store, workspaceID, form, r)
				for _, s := range page {
					found = append(found, s.ID)
				}
				until := end.Until
				if r.After != nil {
					until = r.After.Until
				}
				if more = end.More; more {
					last := page[len(page)-1]
					r.After = &rest.Position{CreatedAt: time.Time(last.CreatedAt), ID: last.ID, Until: until}
				}
			}
			if !slices.Equal(found, want) {
				t.Errorf("%s, in pages of %d: %d submissions, want %d", name, limit, len(found), len(want))
			}
		}
	}
}

// submissions returns the page of a list.
func submissions(
	t *testing.T, store *Store, workspaceID, form uuid.UUID, r rest.Range,
) (page []engage.SubmissionRecord, end rest.End) {
	t.Helper()
	end, err := store.Engage().Submissions(t.Context(), workspaceID, form, r, func(s engage.SubmissionRecord) bool {
		page = append(page, s)
		return true
	})
	must(t, err)
	return page, end
}

// matching returns the ids that a list with the filter has.
func matching(t *testing.T, store *Store, form uuid.UUID, f rest.Filter) []uuid.UUID {
	t.Helper()
	if f.CreatedBefore.IsZero() {
		f.CreatedBefore = time.Now().AddDate(1, 0, 0)
	}
	rows := orFail(store.pool.Query(t.Context(), `select id from resource.submissions where form_id = $1
		and ($2 = '' or status = $2) and created_at >= $3 and created_at < $4 and finished_at >= $5
		order by created_at desc, id desc`, form, f.Status, f.CreatedSince, f.CreatedBefore, f.UpdatedSince))(t)
	return orFail(pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]))(t)
}

// seenStatements is a tracer that keeps each statement with its arguments.
type seenStatements struct{ all []pgx.TraceQueryStartData }

func (s *seenStatements) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	s.all = append(s.all, data)
	return ctx
}

func (s *seenStatements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A statement about one submission, and a list's first page, read few partitions, also with a kept plan.
func TestSubmissionMonths_FewPartitionsAreRead(t *testing.T) {
	t.Parallel()
	testkit.SkipIfDistributed(t, "partitions are created by hand")
	w := postgrestest.New(t) // what other tests write changes the plans
	pastSubmissionMonths(w)
	seen := &seenStatements{}
	store := orFail(Open(t.Context(), w.URL(), Limits{Connections: 4, Wait: testkit.StoreWait}, seen))(t)
	t.Cleanup(store.Close)
	workspaceID := w.Workspace()
	form := addForm(w, workspaceID)
	addDaily(w, workspaceID, form, 150)
	w.Exec("analyze resource.submissions")
	e, one := store.Engage(), newSubmission(workspaceID, form)
	orFail(e.Accept(t.Context(), rest.Key{}, one, rest.Answer{}))(t)
	all := w.Count(submissionMonths)
	future := w.Count(submissionMonths + " where starts > now()")
	for _, c := range []struct {
		name string
		most int // partitions
		do   func() error
	}{
		{"wait", 2, func() error { _, err := e.NextWaiting(t.Context(), uuid.Nil, time.Now()); return err }},
		{"read", 2, func() error { _, err := e.Submission(t.Context(), workspaceID, one.ID); return err }},
		{"status", 2, func() error { _, err := e.SubmissionStatus(t.Context(), workspaceID, one.ID); return err }},
		{"process", 2, func() error {
			_, err := e.ProcessWaiting(t.Context(), workspaceID, time.Now(), 100)
			return err
		}},
		{"first page", 2 + future, func() error {
			_, err := e.Submissions(t.Context(), workspaceID, form, rest.Range{Limit: 20},
				func(engage.SubmissionRecord) bool { return true })
			return err
		}},
	} {
		seen.all = nil
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		checked := 0
		for _, s := range seen.all {
			if !strings.Contains(s.SQL, "resource.submissions ") || strings.Contains(s.SQL, "insert") {
				continue
			}
			checked++
			for _, n := range partitionsOf(t, w, s) {
				if n < 1 || n > c.most {
					t.Errorf("%s reads %d of %d partitions, want at most %d: %s", c.name, n, all, c.most, s.SQL)
				}
			}
		}
		if checked == 0 {
			t.Errorf("%s: no statement was checked", c.name)
		}
	}
}

// partitionsOf returns how many partitions the plan for the arguments and the kept plan of a statement read.
func partitionsOf(t *testing.T, w *postgrestest.Fixture, s pgx.TraceQueryStartData) (counts []int) {
	t.Helper()
	connection := postgrestest.Connect(t, w.Database.Owner)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		orFail(connection.Exec(t.Context(), "set plan_cache_mode = "+mode))(t)
		plan := explained(t, connection, s.SQL, s.Args)
		found := regexp.MustCompile(`on (submissions_\d+\S*)`).FindAllString(plan, -1)
		slices.Sort(found)
		counts = append(counts, len(slices.Compact(found)))
	}
	return counts
}

// A submission is found even if its id has no time, or another one than its month.
func TestSubmissionMonths_SubmissionIsFoundByAnyID(t *testing.T) {
	t.Parallel()
	w := withMonths(t)
	e, workspaceID := open(t, w).Engage(), w.Workspace()
	form := addForm(w, workspaceID)
	future, past := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	copy(future[:6], "\xff\xff\xff\xff\xff\xff") // the time
	copy(past[:6], "\x00\x00\x00\x00\x00\x00")
	for name, id := range map[string]uuid.UUID{
		"random":       uuid.New(),
		"other months": uuid.Must(uuid.NewV7()),
		"far future":   future,
		"far past":     past,
	} {
		addSubmission(w, workspaceID, form, id, "100 days")
		w.Exec("update resource.submissions set trapped = true where id = $1", id)
		if n, err := e.ProcessWaiting(t.Context(), workspaceID, time.Time{}, 100); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		for _, in := range []uuid.UUID{workspaceID, uuid.Nil} {
			if s, err := e.SubmissionStatus(t.Context(), in, id); err != nil || s.Status != engage.Rejected {
				t.Errorf("%s: %s, %v", name, s.Status, err)
			}
		}
		if s, err := e.Submission(t.Context(), workspaceID, id); err != nil || s.ID != id {
			t.Errorf("%s: %s, %v", name, s.ID, err)
		}
		if _, err := e.Submission(t.Context(), uuid.New(), id); err != engage.ErrNoSubmission {
			t.Errorf("%s: in another workspace: %v", name, err)
		}
	}
}

// A submission that ends long after it was accepted is in the lists of changed submissions, and what is written next
// has a later time.
func TestSubmissionMonths_LateSubmissionIsFoundByItsChange(t *testing.T) {
	t.Parallel()
	w := withMonths(t)
	store, workspaceID := open(t, w), w.Workspace()
	e, form := store.Engage(), addForm(w, workspaceID)
	addDaily(w, workspaceID, form, 10)
	changed := func() []engage.SubmissionRecord {
		t.Helper()
		since := rest.Filter{UpdatedSince: time.Now().Add(-time.Hour)}
		page, _ := submissions(t, store, workspaceID, form, rest.Range{Limit: 20, Filter: since})
		return page
	}
	if n := len(changed()); n != 1 {
		t.Errorf("%d submissions were changed", n)
	}
	id := uuid.New()
	addSubmission(w, workspaceID, form, id, "100 days")
	orFail(e.ProcessWaiting(t.Context(), workspaceID, time.Time{}, 100))(t)
	if all := changed(); len(all) != 2 || all[1].ID != id {
		t.Errorf("the changed submissions are %v, want two, the older one %s", all, id)
	}
	// As if the clock had been set back since the submission ended.
	w.Exec("update resource.submissions set finished_at = now() + interval '1 minute' where id = $1", id)
	w.Exec(`update resource.list_locks l set late_at = s.finished_at from resource.submissions s
		where s.id = $1 and l.list = s.form_id::text`, id)
	w.Wants(1, `select count(*) from resource.submissions where id = $3
		and finished_at < resource.next_moment($1, $2)`, workspaceID, form.String(), id)
}
