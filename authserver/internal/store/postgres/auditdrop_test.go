package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// pastMonths adds the partitions of the 6 months before this one, with an event for each day.
func (l *storeTest) pastMonths() {
	l.Helper()
	l.fixture.Exec(`drop table account.audit_events_earlier`)
	l.fixture.Exec(`do $$ declare month timestamptz; begin
		for month in
			select (date_trunc('month', now() at time zone 'UTC') - make_interval(months => n)) at time zone 'UTC'
			from generate_series(1, 6) n loop
			execute format('create table account.%I partition of account.audit_events for values from (%L) to (%L)',
				'audit_events_past_' || to_char(month, 'YYYY_MM'), month,
				(month at time zone 'UTC' + interval '1 month') at time zone 'UTC');
		end loop;
	end $$`)
	l.fixture.Exec(`insert into account.audit_events (id, at, actor, action, subject)
		select gen_random_uuid(), day, 'system', 'x', 'x' from generate_series(
			(date_trunc('month', now() at time zone 'UTC') - interval '6 months') at time zone 'UTC', now(),
			interval '1 day') day`)
}

const (
	auditMonths = `select count(*) from account.audit_months()`
	dropMonth   = `select coalesce(account.drop_audit_month(now() - interval '91 days'), -1)`
)

// A call drops one month, so that each drop locks the audit log for a moment.
func TestAuditMonths_OneMonthIsDroppedPerCall(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastMonths()
	before := l.count(auditMonths)
	for dropped := 1; dropped <= 2; dropped++ {
		if n := l.count(dropMonth); n < 1 || l.count(auditMonths) != before-dropped {
			t.Errorf("%d events, and %d of %d months are left", n, l.count(auditMonths), before)
		}
	}
	for l.count(dropMonth) >= 0 {
	}
	if n := l.count(`select count(*) from account.audit_events where at > now() - interval '90 days'`); n < 89 {
		t.Errorf("%d events of the last 90 days are left", n)
	}
}

// notDroppedInUse checks that no month of a table is dropped while another session reads the table, that the drop waits
// only a moment, and that a month is dropped afterwards.
func (l *storeTest) notDroppedInUse(table, months, drop string) {
	l.Helper()
	before := l.count(months)
	reader, err := pgx.Connect(l.Context(), l.fixture.Database.Owner)
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = reader.Close(context.WithoutCancel(l.Context())) }()
	if _, err := reader.Exec(l.Context(), "begin; select count(*) from "+table); err != nil {
		l.Fatal(err)
	}
	testkit.Quick(l, 900*time.Millisecond, func() { // the time for which it is locked
		l.wantCount(-1, "records were dropped", drop)
		l.wantCount(before, "months are left", months)
	})
	if _, err := reader.Exec(l.Context(), "rollback"); err != nil {
		l.Fatal(err)
	}
	if n := l.count(drop); n < 0 || l.count(months) != before-1 {
		l.Errorf("%d of %d months are left later", l.count(months), before)
	}
}

// While another session reads the audit log, no month is dropped, and an insert waits only a moment.
func TestAuditMonths_LogInUseIsNotDropped(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastMonths()
	l.notDroppedInUse("account.audit_events", auditMonths, dropMonth)
}

// Refusals that the default partition has more than once move to their month once.
func TestAuditMonths_RepeatedRefusalsMoveToTheirMonth(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.fixture.Exec(`do $$ declare name text; begin
		for name in select p.name from account.audit_months() p where p.starts is not null loop
			execute format('drop table account.%I', name);
		end loop;
	end $$`)
	insert := fmt.Sprintf(`insert into account.audit_events (id, at, actor, action, subject, detail)
		select gen_random_uuid(), date_trunc('hour', now()) + make_interval(months => 3), 'system', '%s', 'grant:x',
			'{"reason": "x"}' from generate_series(1, $1) on conflict do nothing`, audit.GrantRefused)
	const stored = `select count(*) from account.audit_events where subject = 'grant:x'`
	l.fixture.Exec(insert, 3)
	if n := l.count(stored); n != 1 {
		t.Errorf("the default partition has %d refusals", n)
	}
	// As it was before the index.
	l.fixture.Exec(`drop index account.audit_events_default_refusals`)
	l.fixture.Exec(insert, 3)
	if n := l.count(stored); n != 4 {
		t.Fatalf("%d refusals", n)
	}
	l.fixture.Exec(`select account.make_audit_months()`)
	if n, left := l.count(stored), l.count(`select count(*) from account.audit_events_default`); n != 1 || left != 0 {
		t.Errorf("%d refusals, %d of them in the default partition", n, left)
	}
}
