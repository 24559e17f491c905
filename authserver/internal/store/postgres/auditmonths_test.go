package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

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
	superuser, err := pgx.Connect(t.Context(), database.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	name := "months_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := superuser.Exec(t.Context(), "create database "+name+" owner test_owner"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := superuser.Exec(ctx, "drop database "+name+" with (force)")
		if err = errors.Join(err, superuser.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	in := func(server string) string {
		parsed, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		parsed.Path = "/" + name
		return parsed.String()
	}
	return testkit.Database{Owner: in(database.Owner), Authserver: in(database.Authserver)}
}

// migrateBefore applies the migrations before a number.
func migrateBefore(t *testing.T, number string, database testkit.Database) {
	t.Helper()
	files, err := fs.Sub(postgres.Migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	before := migrate.Migrations{Files: earlierMigrations{files, number}, Table: "goose_authserver"}
	if _, err := before.Up(t.Context(), database.Owner); err != nil {
		t.Fatal(err)
	}
}

// A refusal is recorded once an hour in the month's partition too.
func TestAuditMonths_RefusalIsRecordedOnce(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.fixture.Exec(`drop table account.audit_events_earlier`)
	if n := l.count(`with made as (select account.make_audit_months()) select count(*) from made`); n != 1 {
		t.Fatal("no months")
	}
	for range 3 {
		err := l.RecordRefusal(t.Context(), audit.Event{
			Actor:   "system",
			Action:  audit.GrantRefused,
			Subject: "grant:x",
			Detail:  map[string]any{"reason": "x"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const here = `select count(*) from account.audit_events where action = 'grant.' || 'refused'
		and tableoid::regclass::text like 'account.audit_events_2%'`
	l.wantCount(1, "refusals in this month's partition", here)
}

// Events in the default partition move to their month when it is made.
func TestAuditMonths_DefaultPartitionIsEmptiedByMonth(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.fixture.Exec(`do $$ declare name text; begin
		for name in select p.name from account.audit_months() p where p.starts is not null loop
			execute format('drop table account.%I', name);
		end loop;
	end $$`)
	l.fixture.Exec(`insert into account.audit_events (id, at, actor, action, subject)
		select gen_random_uuid(), now() + make_interval(months => 3), 'system', 'x', 'x' from generate_series(1, 7)`)
	const left = `select count(*) from account.audit_events_default`
	if n := l.count(left); n != 7 {
		t.Fatalf("%d events in the default partition", n)
	}
	forEver := l.Retention(postgres.RetentionPeriods{}) // it makes months too
	if err := forEver.RunOnce(t.Context(), func(string, int64) {}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if n, all := l.count(left), l.count(`select count(*) from account.audit_events`); n != 0 || all != 7 {
		t.Errorf("%d events in the default partition, %d in all", n, all)
	}
}

// A month is dropped when all its events are due, and none is deleted before.
func TestAuditMonths_PastMonthIsDropped(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.pastMonths()
	const (
		tables = auditMonths
		due    = `select count(*) from account.audit_events
			where at < account.audit_events_due(now() - interval '100 days')`
	)
	months, all, ready := l.count(tables), l.count(`select count(*) from account.audit_events`), l.count(due)
	kept := keepAll()
	kept[postgres.SettingAuditEvents] = 100 * day
	deletes(t, l.Retention(kept), "audit events", ready)
	if n := l.count(`select count(*) from account.audit_events`); ready < 20 || n != all-ready {
		t.Errorf("%d events are left of %d, and %d were due", n, all, ready)
	}
	dropped := months - l.count(tables)
	if n := l.count(due); n != 0 || dropped < 1 {
		t.Errorf("%d due events and %d months are left of %d", n, l.count(tables), months)
	}
	if n := l.count(`select count(*) from account.audit_events where at > now() - interval '100 days'`); n != 100-1 &&
		n != 100 {
		t.Errorf("%d events of the last 100 days are left", n)
	}
}
