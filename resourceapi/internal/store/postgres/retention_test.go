package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

const (
	testDay      = 24 * time.Hour
	keepImported = 70 * testDay
	keepLeft     = 20 * testDay
)

type retentionTest struct {
	*postgrestest.Fixture
	t         *testing.T
	store     *Store
	records   *retention.Store
	workspace uuid.UUID
}

func newRetentionTest(t *testing.T) *retentionTest {
	t.Helper()
	w := postgrestest.New(t)
	store := open(t, w)
	records := store.Retention(keepImported, keepLeft)
	return &retentionTest{w, t, store, records, w.Workspace()}
}

// deletes runs the kind, and fails unless it deletes as many records as Status counts, which is want.
func (r *retentionTest) deletes(name string, want int) {
	r.t.Helper()
	kinds := r.records.Kinds()
	i := slices.IndexFunc(kinds, func(k retention.Kind) bool { return k.Name == name })
	if i < 0 {
		r.t.Fatalf("no kind %s", name)
	}
	status, err := r.records.Status(r.t.Context(), kinds[i])
	if err != nil || status.Due != want || (status.Oldest == nil) != (want == 0) {
		r.t.Errorf("%s: %+v due, want %d: %v", name, status, want, err)
	}
	deleted, complete, err := r.records.Delete(r.t.Context(), kinds[i])
	if err != nil || deleted != int64(want) || !complete {
		r.t.Errorf("%s: %d deleted, complete %v, want %d: %v", name, deleted, complete, want, err)
	}
}

// form adds a form that keeps submissions for so many months.
func (r *retentionTest) form(months int) uuid.UUID {
	form := addForm(r.Fixture, r.workspace)
	r.Exec("update resource.forms set retention_months = $2 where id = $1", form, months)
	return form
}

func (r *retentionTest) supporter() uuid.UUID {
	id := uuid.New()
	r.Exec(`insert into resource.supporters (id, tenant_id) values ($1, $2)`, id, r.workspace)
	return id
}

// submissions adds n submissions of a supporter, so long ago.
func (r *retentionTest) submissions(form, supporter uuid.UUID, n int, ago string) {
	r.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, status,
			finished_at, supporter_id, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), '{}', '[]', false, 'processed', now(), $3,
			now() - $4::interval from generate_series(1, $5)`, r.workspace, form, supporter, ago, n)
}

func TestRetention_SubmissionsByTheirForm(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	year, default24, left := r.form(12), r.form(24), r.supporter()
	for form, months := range map[uuid.UUID]int{year: 12, default24: 24} {
		r.submissions(form, left, 520, fmt.Sprintf("%d months 1 hour", months))
		r.submissions(form, left, 3, fmt.Sprintf("%d months -1 hour", months))
	}
	r.deletes("submissions", 1040)
	r.deletes("submissions", 0)
	r.Wants(6, "select count(*) from resource.submissions")
	r.Wants(1040, "select count(*) from account.events where type = 'submission.deleted'")
}

func TestRetention_SupportersAfterTheirLastSubmission(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	form := r.form(12)
	left, returned, stayed, fresh := r.supporter(), r.supporter(), r.supporter(), r.supporter()
	r.submissions(form, left, 2, "13 months")
	r.submissions(form, returned, 1, "13 months")
	r.submissions(form, stayed, 1, "1 month")
	r.deletes("submissions", 3)
	r.submissions(form, returned, 1, "1 day")
	r.deletes("supporters without submissions", 0)
	r.Exec("update resource.supporters_left set since = now() - interval '19 days'")
	r.deletes("supporters without submissions", 0)
	r.Exec("update resource.supporters_left set since = now() - interval '21 days'")
	r.deletes("supporters without submissions", 1)
	r.deletes("supporters without submissions", 0)
	r.Wants(3, "select count(*) from resource.supporters where id = any ($1)",
		[]uuid.UUID{returned, stayed, fresh})
	r.Wants(0, "select count(*) from resource.supporters_left")
}

func TestRetention_ImportsKeysAndOthers(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	addEndpoint(r.Fixture, r.workspace, r.User(), "")
	for _, c := range []struct {
		kind string
		keep time.Duration
		sql  string // with the time as $1
	}{
		{"finished imports", keepImported, `insert into resource.imports (id, tenant_id, user_id, status, finished_at)
			values (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'processed', $1)`},
		{"idempotency keys", testDay, `insert into resource.idempotency_keys (tenant_id, user_id, route, key, body_hash,
				created_at)
			values (gen_random_uuid(), gen_random_uuid(), 'POST /', 'k', sha256(''), $1)`},
		{"finished erasures", keepErasures, `insert into resource.erasures
				(tenant_id, id, kind, subjects, user_id, request_id, status, finished_at)
			values (gen_random_uuid(), gen_random_uuid(), 'form', '{}', gen_random_uuid(), '', 'processed', $1)`},
		{"deliveries of webhooks", 7 * testDay, `
			insert into account.webhook_deliveries (tenant_id, id, webhook_id, cause, type, created_at)
			select tenant_id, gen_random_uuid(), id, 'test', 'webhook.test', $1 from account.webhooks`},
	} {
		r.Exec(c.sql, time.Now().Add(-c.keep-time.Hour))
		r.Exec(c.sql, time.Now().Add(-c.keep+time.Hour))
		r.deletes(c.kind, 1)
		r.deletes(c.kind, 0)
	}
	r.Exec(`insert into resource.imports (id, tenant_id, user_id, content, created_at)
		values (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'name', now() - interval '1 year')`)
	r.deletes("finished imports", 0)
	if len(r.records.Kinds()) != 7 {
		t.Errorf("%d kinds: add a row to these tests", len(r.records.Kinds()))
	}
}

// A workspace whose records cannot be deleted does not stop the others.
func TestRetention_FailingWorkspaceDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	r.Exec(`create table resource.kept (tenant_id uuid)`)
	r.Exec(`grant select on resource.kept to almoner_resourceapi`)
	r.Exec(`create function resource.keep() returns trigger language plpgsql as $$
		begin
			if exists (select from resource.kept k where k.tenant_id = old.tenant_id) then
				raise exception 'refused by the test';
			end if;
			return old;
		end $$`)
	r.Exec(`create trigger keep before delete on resource.submissions for each row execute function resource.keep()`)
	for n := range 6 {
		r.workspace = r.Workspace()
		r.submissions(r.form(1), r.supporter(), 3, "40 days")
		if n%2 == 0 {
			r.Exec(`insert into resource.kept values ($1)`, r.workspace)
		}
	}
	deleted, complete, err := r.records.Delete(t.Context(), r.records.Kinds()[0])
	if err == nil || strings.Count(err.Error(), "refused by the test") != 3 || deleted != 9 || complete {
		t.Errorf("%d deleted, complete %v: %v", deleted, complete, err)
	}
	r.Wants(0, `select count(*) from resource.submissions s
		where not exists (select from resource.kept k where k.tenant_id = s.tenant_id)`)
}

// A replaced webhook secret is cleared once events are no longer signed with it.
func TestRetention_ReplacedWebhookSecrets(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	user := r.User()
	for _, until := range []string{"-1 minute", "-1 hour", "-1 day", "1 minute", "1 hour"} {
		addEndpoint(r.Fixture, r.workspace, user, `secret = 'new', secret_key = 'key', former_secret = 'old',
			former_secret_key = 'key', former_until = now() + interval '`+until+"'")
	}
	r.deletes("replaced webhook secrets", 3)
	r.deletes("replaced webhook secrets", 0)
	r.Wants(5, `select count(*) from account.webhooks where secret = 'new' and secret_key = 'key'`)
	r.Wants(2, `select count(*) from account.webhooks where former_secret is not null`)
}

// Due records are found by an index, so that an hourly run does not read whole tables. Only the table of forms is read
// as a whole, because each form has its own period.
func TestRetention_DueRecordsAreFoundByIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
	r := newRetentionTest(t)
	tx := begin(t, r.store)
	// The tables are empty: without these settings, all plans cost the same.
	for _, setting := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		orFail(tx.Exec(t.Context(), "set local "+setting+" = off"))(t)
	}
	for _, k := range r.records.Kinds() {
		sql := "explain (costs off) " + k.Due + " limit 500"
		rows := orFail(tx.Query(t.Context(), sql, time.Now().AddDate(-1, 0, 0)))(t)
		text := strings.Join(orFail(pgx.CollectRows(rows, pgx.RowTo[string]))(t), "\n")
		if strings.Contains(strings.ReplaceAll(text, "Seq Scan on forms", ""), "Seq Scan") ||
			!strings.Contains(text, "Index Cond") {
			t.Errorf("%s:\n%s", k.Name, text)
		}
	}
}
