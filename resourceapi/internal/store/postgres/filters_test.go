package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// A list filtered by status or time reads only matching rows, even if the form has many submissions.
func TestSubmissions_FiltersUseIndexes(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	store := open(t, w)
	workspaceID, form := w.Workspace(), uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		select case n when 1 then $2 else gen_random_uuid() end, $1, 'k' || n, 'x', '[]', '{}', gen_random_uuid()
		from generate_series(1, 3) n`, workspaceID, form)
	w.Exec(`insert into resource.supporters (id, tenant_id) values (gen_random_uuid(), $1)`, workspaceID)
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at,
			status, finished_at, supporter_id)
		select gen_random_uuid(), $1, f.id, gen_random_uuid(), '{}', '[]', false,
			'2026-03-01T00:00:00Z'::timestamptz + make_interval(secs => n), s.status,
			case when s.status <> 'accepted' then '2026-06-01T00:00:00Z'::timestamptz + make_interval(secs => n) end,
			case when s.status = 'processed' then (select id from resource.supporters) end
		from resource.forms f, generate_series(1, 10000) n, lateral (select case
			when n % 50 = 3 then 'accepted' when n % 50 = 7 then 'rejected' else 'processed' end as status) s`,
		workspaceID)
	w.Exec("analyze resource.submissions")
	for name, c := range map[string]struct {
		filter rest.Filter
		wants  string // of the plan
	}{
		"accepted":  {rest.Filter{Status: "accepted"}, "submissions_waiting"},
		"rejected":  {rest.Filter{Status: "rejected"}, "submissions_rejected"},
		"processed": {rest.Filter{Status: "processed"}, "submissions_page"},
		"time": {rest.Filter{
			CreatedSince:  time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC),
			CreatedBefore: time.Date(2026, 3, 1, 1, 1, 0, 0, time.UTC),
		}, "submissions_page"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []any{workspaceID, form, 51}
			add := func(value any) string {
				args = append(args, value)
				return "$" + string(rune('0'+len(args)))
			}
			text := "select " + submissionColumns +
				" from resource.submissions s where s.tenant_id = $1 and s.form_id = $2" +
				filterSQL(c.filter, "s.", add) + " order by s.created_at desc, s.id desc limit $3"
			for which, plan := range map[string]string{
				"now":  explained(t, store.pool, text, args),
				"kept": keptPlan(t, store, text, args),
			} {
				plan = strings.ReplaceAll(plan, "Seq Scan on submissions_9999", "") // which has no rows
				if plan != "" && (strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, c.wants)) {
					t.Errorf("%s: %s", which, plan)
				}
			}
		})
	}
}
