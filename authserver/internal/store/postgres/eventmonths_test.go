package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// pastEventMonths replaces events_earlier by the partitions of this month and the 3 before it, with an event for each
// day.
func (l *storeTest) pastEventMonths() {
	l.Helper()
	l.fixture.Exec(`drop table account.events_earlier`)
	l.fixture.Exec(`do $$ declare month timestamptz; begin
		for month in
			select (date_trunc('month', now() at time zone 'UTC') - make_interval(months => n)) at time zone 'UTC'
			from generate_series(-1, 3) n loop
			continue when exists (select from account.months_of('account.events') p where p.starts <= month);
			execute format('create table account.%I (like account.events_later including defaults including indexes)',
				'events_past_' || to_char(month, 'YYYY_MM'));
			execute format('alter table account.events attach partition account.%I for values from (%L) to (%L)',
				'events_past_' || to_char(month, 'YYYY_MM'), month,
				(month at time zone 'UTC' + interval '1 month') at time zone 'UTC');
		end loop;
	end $$`)
	l.fixture.Exec(`insert into account.events (tenant_id, type, data, created_at)
		select $1, 'x.y', '{}', now() - make_interval(days => n) from generate_series(0, 80) n`, l.grant.WorkspaceID)
}

const (
	eventMonths    = `select count(*) from account.months_of('account.events')`
	dropEventMonth = `select coalesce(account.drop_event_month(now()), -1)`
	keptEvents     = `select count(*) from account.events where created_at > now() - interval '30 days'`
)

// A month of events is dropped once its last event is 30 days old, and not before, whatever time the caller passes.
func TestEventMonths_PastMonthIsDropped(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastEventMonths()
	const due = `select count(*) from account.events where created_at < account.events_due(now() - interval '30 days')`
	months, all, ready, kept := l.count(eventMonths), l.count(`select count(*) from account.events`), l.count(due),
		l.count(keptEvents)
	if ready == 0 || kept < 30 {
		t.Fatalf("%d events are due, %d are kept", ready, kept)
	}
	deletes(t, l.Retention(keepAll()), "events", ready)
	if n := l.count(`select count(*) from account.events`); n != all-ready || l.count(keptEvents) != kept {
		t.Errorf("%d events are left of %d, and %d were due", n, all, ready)
	}
	if n := l.count(eventMonths); n >= months {
		t.Errorf("%d months are left of %d", n, months)
	}
	l.wantCount(-1, "events of a month that is not due were dropped", dropEventMonth)
	l.wantCount(kept, "events are kept", keptEvents)
}

// While another session reads events, no month is dropped, and an insert waits only a moment.
func TestEventMonths_EventsInUseAreNotDropped(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastEventMonths()
	l.notDroppedInUse("account.events", eventMonths, dropEventMonth)
}

// Events of two months are numbered in one order by concurrent readers, and a month refuses a sequence that it has.
func TestEventMonths_SequencesHaveNoHole(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastEventMonths()
	inMonths := `select count(distinct tableoid) from account.events where created_at > now() - interval '30 days'`
	if n := l.count(inMonths); n < 2 && time.Now().UTC().Day() < 28 {
		t.Fatalf("the events are in %d months", n)
	}
	concurrently(8, func(int) {
		connection, err := pgx.Connect(t.Context(), l.fixture.Database.Owner)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
		for range 3 {
			if _, err := connection.Exec(t.Context(), `select account.add_event($1, 'x.y', $1, null)`,
				l.grant.WorkspaceID); err != nil {
				t.Error(err)
			}
			if _, err := connection.Exec(t.Context(), `select account.number_events($1)`,
				l.grant.WorkspaceID); err != nil {
				t.Error(err)
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
	t.Parallel()
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
