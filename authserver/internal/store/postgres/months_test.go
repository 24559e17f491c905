package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// onlyMonths replaces the partition of earlier records by those of the last n months, which are like another one.
func (l *storeTest) onlyMonths(table, like string, n int) {
	l.Helper()
	l.fixture.Exec(strings.NewReplacer("TABLE", table, "LIKE", like, "MONTHS", fmt.Sprint(n)).Replace(`
		drop table account.TABLE_earlier;
		do $$ declare month timestamptz; part text; begin
			for month in
				select (date_trunc('month', now() at time zone 'UTC') - make_interval(months => n)) at time zone 'UTC'
				from generate_series(-1, MONTHS) n loop
				continue when exists (select from account.months_of('account.TABLE') p where p.starts <= month);
				part := 'TABLE_past_' || to_char(month, 'YYYY_MM');
				execute format('create table account.%I (like account.LIKE including defaults including indexes)',
					part);
				execute format('alter table account.TABLE attach partition account.%I for values from (%L) to (%L)',
					part, month, (month at time zone 'UTC' + interval '1 month') at time zone 'UTC');
			end loop;
		end $$`))
}

// pastMonths makes the partitions of the audit log for the last 6 months, with an event for each day.
func (l *storeTest) pastMonths() {
	l.Helper()
	l.onlyMonths("audit_events", "audit_events_default", 6)
	l.fixture.Exec(`insert into account.audit_events (id, at, actor, action, subject)
		select gen_random_uuid(), day, 'system', 'x', 'x' from generate_series(
			(date_trunc('month', now() at time zone 'UTC') - interval '6 months') at time zone 'UTC', now(),
			interval '1 day') day`)
}

const (
	auditMonths = `select count(*) from account.audit_months()`
	dropMonth   = `select coalesce(account.drop_audit_month(now() - interval '91 days'), -1)`

	// As if no process had made months for half a year.
	dropAuditMonths = `do $$ declare name text; begin
		for name in select p.name from account.audit_months() p where p.starts is not null loop
			execute format('drop table account.%I', name);
		end loop;
	end $$`
)

// notDroppedInUse checks that no month of a table is dropped while another session reads the table, that the drop waits
// only a moment, and that a month is dropped afterwards.
func (l *storeTest) notDroppedInUse(table, months, drop string) {
	l.Helper()
	before := l.count(months)
	reader := connect(l, l.fixture.Database.Owner)
	must(l, errOf(reader.Exec(l.Context(), "begin; select count(*) from "+table)))
	testkit.Quick(l, 900*time.Millisecond, func() { // the time for which it is locked
		l.wantCount(-1, "records were dropped", drop)
		l.wantCount(before, "months are left", months)
	})
	must(l, errOf(reader.Exec(l.Context(), "rollback")))
	if n := l.count(drop); n < 0 || l.count(months) != before-1 {
		l.Errorf("%d of %d months are left later", l.count(months), before)
	}
}

// A call drops one month, so that each drop locks the audit log for a moment.
func TestAuditMonths_OneMonthIsDroppedPerCallUnlessInUse(t *testing.T) {
	l := ownStoreTest(t)
	l.pastMonths()
	l.notDroppedInUse("account.audit_events", auditMonths, dropMonth)
	before := l.count(auditMonths)
	if n := l.count(dropMonth); n < 1 || l.count(auditMonths) != before-1 {
		t.Errorf("%d events, and %d of %d months are left", n, l.count(auditMonths), before)
	}
	for l.count(dropMonth) >= 0 {
	}
	if n := l.count(`select count(*) from account.audit_events where at > now() - interval '90 days'`); n < 89 {
		t.Errorf("%d events of the last 90 days are left", n)
	}
}

// A run of the retention makes months. The events of the default partition move to them, each refusal once.
func TestAuditMonths_DefaultPartitionIsEmptiedByMonth(t *testing.T) {
	l := ownStoreTest(t)
	l.fixture.Exec(dropAuditMonths)
	l.fixture.Exec(`insert into account.audit_events (id, at, actor, action, subject)
		select gen_random_uuid(), now() + make_interval(months => 3), 'system', 'x', 'x' from generate_series(1, 7)`)
	insert := fmt.Sprintf(`insert into account.audit_events (id, at, actor, action, subject, detail)
		select gen_random_uuid(), date_trunc('hour', now()) + make_interval(months => 3), 'system', '%s', 'grant:x',
			'{"reason": "x"}' from generate_series(1, $1) on conflict do nothing`, audit.GrantRefused)
	const stored = `select count(*) from account.audit_events where subject = 'grant:x'`
	l.fixture.Exec(insert, 3)
	l.wantCount(1, "refusals in the default partition", stored)
	// As it was before the index.
	l.fixture.Exec(`drop index account.audit_events_default_refusals`)
	l.fixture.Exec(insert, 3)
	l.wantCount(4, "refusals without the index", stored)
	const left = `select count(*) from account.audit_events_default`
	l.wantCount(7+4, "events in the default partition", left)
	forEver := l.Retention(postgres.RetentionPeriods{})
	must(t, forEver.RunOnce(t.Context(), func(string, int64) {}, slog.New(slog.DiscardHandler)))
	l.wantCount(1, "refusals", stored)
	l.wantCount(0, "events in the default partition", left)
	l.wantCount(7+1, "events", `select count(*) from account.audit_events`)
}

// earlierMigrations are the migrations before a number.
type earlierMigrations struct {
	fs.FS
	number string
}

func (e earlierMigrations) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(e.FS, name)
	var some []fs.DirEntry
	for _, file := range all {
		if file.Name() < e.number {
			some = append(some, file)
		}
	}
	return some, err
}

// emptyDatabase creates a database on the server of database, and returns it with these roles.
func emptyDatabase(t *testing.T, database testkit.Database) testkit.Database {
	t.Helper()
	superuser := connect(t, database.Superuser)
	name := "months_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	must(t, errOf(superuser.Exec(t.Context(), "create database "+name+" owner test_owner")))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(t, errOf(superuser.Exec(ctx, "drop database "+name+" with (force)")))
	})
	return testkit.Database{
		Owner:      testkit.InDatabase(database.Owner, name),
		Authserver: testkit.InDatabase(database.Authserver, name),
	}
}

// migrateBefore applies the migrations before a number.
func migrateBefore(t *testing.T, number string, database testkit.Database) {
	t.Helper()
	files, err := fs.Sub(postgres.Migrations, "migrations")
	must(t, err)
	before := migrate.Migrations{Files: earlierMigrations{files, number}, Table: "goose_authserver"}
	must(t, errOf(before.Up(t.Context(), database.Owner)))
}

func TestAuditMonths_RefusalIsRecordedOnce(t *testing.T) {
	l := ownStoreTest(t)
	l.fixture.Exec(`drop table account.audit_events_earlier`)
	l.fixture.Exec(`select account.make_audit_months()`)
	for range 3 {
		must(t, l.RecordRefusal(t.Context(), audit.Event{
			Actor:   "system",
			Action:  audit.GrantRefused,
			Subject: "grant:x",
			Detail:  map[string]any{"reason": "x"},
		}))
	}
	const here = `select count(*) from account.audit_events where action = 'grant.' || 'refused'
		and tableoid::regclass::text like 'account.audit_events_2%'`
	l.wantCount(1, "refusals in this month's partition", here)
}

// dropsDueMonths runs the retention of a table of months, and checks that it deletes the months whose records are all
// due, and no record of the last days.
func (l *storeTest) dropsDueMonths(kind, table, column string, keep postgres.RetentionPeriods, days int) {
	l.Helper()
	records := `select count(*) from account.` + table
	dueAt := fmt.Sprintf(`now() - interval '%d days'`, days)
	due := records + ` where ` + column + ` < account.` + table + `_due(` + dueAt + `)`
	recent := records + ` where ` + column + ` > ` + dueAt
	parts := `select count(*) from account.months_of('account.` + table + `')`
	months, all, ready, kept := l.count(parts), l.count(records), l.count(due), l.count(recent)
	if ready == 0 || kept < days-1 {
		l.Fatalf("%d %s are due, %d of the last %d days are there", ready, kind, kept, days)
	}
	deletes(l.T, l.Retention(keep), kind, ready)
	l.wantCount(all-ready, kind+" are left", records)
	l.wantCount(kept, kind+" of the last days are left", recent)
	l.wantCount(0, kind+" are due", due)
	if n := l.count(parts); n >= months {
		l.Errorf("%d months are left of %d", n, months)
	}
}

// A month is dropped when all its events are due, and none is deleted before.
func TestAuditMonths_PastMonthIsDropped(t *testing.T) {
	l := ownStoreTest(t)
	l.pastMonths()
	kept := keepAll()
	kept[postgres.SettingAuditEvents] = 100 * day
	l.dropsDueMonths("audit events", "audit_events", "at", kept, 100)
}

// pastEventMonths makes the partitions of the events for the last 4 months, with an event for each of the last 80 days.
// The first month has none; on every day of a year, a later one that is due has some.
func (l *storeTest) pastEventMonths() {
	l.Helper()
	l.onlyMonths("events", "events_later", 4)
	l.fixture.Exec(`insert into account.events (tenant_id, type, data, created_at)
		select $1, 'x.y', '{}', now() - make_interval(days => n) from generate_series(0, 80) n`, l.grant.WorkspaceID)
}

const (
	eventMonths    = `select count(*) from account.months_of('account.events')`
	dropEventMonth = `select coalesce(account.drop_event_month(now()), -1)`
	keptEvents     = `select count(*) from account.events where created_at > now() - interval '30 days'`
)

// A month of events is dropped once its last event is 30 days old, and not before, whatever time the caller passes, nor
// while the events are in use.
func TestEventMonths_PastMonthIsDropped(t *testing.T) {
	l := ownStoreTest(t)
	l.pastEventMonths()
	l.notDroppedInUse("account.events", eventMonths, dropEventMonth)
	l.dropsDueMonths("events", "events", "created_at", keepAll(), 30)
	kept := l.count(keptEvents)
	l.wantCount(-1, "events of a month that is not due were dropped", dropEventMonth)
	l.wantCount(kept, "events are kept", keptEvents)
}

// Events of two months are numbered in one order by concurrent readers, and a month refuses a sequence that it has.
func TestEventMonths_SequencesHaveNoHole(t *testing.T) {
	l := ownStoreTest(t)
	l.pastEventMonths()
	inMonths := `select count(distinct tableoid) from account.events where created_at > now() - interval '30 days'`
	if n := l.count(inMonths); n < 2 && time.Now().UTC().Day() < 28 {
		t.Fatalf("the events are in %d months", n)
	}
	concurrently(8, func(int) {
		for range 3 {
			for _, sql := range []string{
				`select account.add_event($1, 'x.y', $1, null)`, `select account.number_events($1)`,
			} {
				_, err := l.fixture.Owner.Exec(t.Context(), sql, l.grant.WorkspaceID)
				wantErr(t, sql, nil, err)
			}
		}
	})
	const holes = `select coalesce(max(sequence), 0) - count(distinct sequence)
		from account.events where tenant_id = $1`
	l.wantCount(0, "sequences are missing or were given twice", holes, l.grant.WorkspaceID)
	const numbered = `select count(*) from account.events
		where tenant_id = $1 and created_at > now() - interval '30 days' and sequence is null`
	l.wantCount(0, "events have no sequence", numbered, l.grant.WorkspaceID)
	_, err := l.fixture.Owner.Exec(t.Context(), `insert into account.events (tenant_id, type, data, sequence)
		select $1, 'x.y', '{}', 1000 from generate_series(1, 2)`, l.grant.WorkspaceID)
	if err == nil {
		t.Error("a month has the same sequence twice")
	}
}

// Events of the last partition move to their months when these are made, and keep their sequences.
func TestEventMonths_LastPartitionIsEmptiedByMonth(t *testing.T) {
	l := ownStoreTest(t)
	// As if no process had made months for half a year.
	l.fixture.Exec(`do $$ declare first timestamptz; name text; begin
		select min(p.starts) into first from account.months_of('account.events') p;
		for name in select p.name from account.months_of('account.events') p where p.starts is not null
			and p.ends is not null loop
			execute format('drop table %s', name);
		end loop;
		alter table account.events detach partition account.events_later;
		execute format('alter table account.events attach partition account.events_later
			for values from (%L) to (maxvalue)', first);
	end $$`)
	l.fixture.Exec(`insert into account.events (tenant_id, type, data, created_at, sequence)
		select gen_random_uuid(), 'x.y', '{}', now() + make_interval(months => n + 2), n from generate_series(1, 7) n`)
	const left = `select count(*) from account.events_later`
	if n := l.count(left); n < 6 {
		t.Fatalf("%d events in the last partition", n)
	}
	for range 2 { // a month that exists is not made again
		l.fixture.Exec(`select account.make_event_months()`)
	}
	const ahead = `select count(*) from account.events where sequence between 1 and 7
		and created_at > now() + interval '2 months'`
	if n, all := l.count(left), l.count(ahead); n != 6 || all != 7 {
		t.Errorf("%d events in the last partition, %d in all", n, all)
	}
	l.wantCount(1, "partitions of the third month after this one",
		`select count(*) from account.months_of('account.events') p
		where p.starts <= now() + interval '3 months' and p.ends > now() + interval '3 months'`)
}
