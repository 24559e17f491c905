package torture

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
)

// checkEventMonths removes a future month of the events and adds a past one on all nodes, and checks that authserver's
// role creates the former again and drops the latter, as retention does. It deletes the earlier events.
func checkEventMonths(t *testing.T, admin *pgx.Conn, authserver, workspace string) {
	t.Helper()
	shards := func(table string) (count int) {
		t.Helper()
		must(t, admin.QueryRow(t.Context(), `select count(*) from citus_shards s join pg_dist_node n
			on (n.nodename, n.nodeport) = (s.nodename, s.nodeport)
			where n.groupid > 0 and s.table_name = to_regclass($1)`, table).Scan(&count))
		return count
	}
	var last, begins string
	must(t, admin.QueryRow(t.Context(), `select name, starts::text
		from account.months_of('account.events') where ends is not null order by ends desc limit 1`).
		Scan(&last, &begins))
	for _, sql := range []string{
		"alter table account.events detach partition account.events_later",
		"drop table " + last,
		"alter table account.events attach partition account.events_later for values from ('" + begins +
			"') to (maxvalue)",
		"drop table account.events_earlier",
		`create table account.events_2020_01 partition of account.events
			for values from ('2020-01-01') to ('2020-02-01')`,
		`insert into account.events (tenant_id, type, data, created_at)
			values ('` + workspace + `', 'x.y', '{}', '2020-01-02')`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if n := shards("account.events_2020_01"); n == 0 {
		t.Fatal("the workers have no shard of a month of events")
	}
	service, err := pgx.Connect(t.Context(), authserver)
	if err != nil {
		t.Fatal(harness.Redact(err.Error()))
	}
	defer func() { _ = service.Close(t.Context()) }()
	if _, err := service.Exec(t.Context(), "select account.make_event_months()"); err != nil {
		t.Errorf("make months of events: %v", err)
	}
	if n := shards(last); n == 0 {
		t.Errorf("the workers have no shard of %s", last)
	}
	dropped := -1
	err = service.QueryRow(t.Context(), "select account.drop_event_month(now())").Scan(&dropped)
	if n := shards("account.events_2020_01"); err != nil || dropped != 1 || n != 0 {
		t.Errorf("drop a month of events: %d events, %v; the workers have %d of its shards", dropped, err, n)
	}
}
