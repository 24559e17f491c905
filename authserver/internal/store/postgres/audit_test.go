package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The role of authserver appends audit events. It cannot set their time or change them.
func TestAudit_RoleCannotBackdateOrChangeEvents(t *testing.T) {
	testkit.SkipIfDistributed(t, "rights on columns have no effect (deploy/citus/README.md)")
	t.Parallel()
	l := newStoreTest(t)
	event := audit.Event{Actor: "system", Action: audit.KeyRotated, Subject: "key:x"}
	if err := l.Record(t.Context(), event); err != nil {
		t.Fatalf("append an event: %v", err)
	}
	role, err := pgx.Connect(t.Context(), l.fixture.Database.Authserver)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = role.Close(t.Context()) }()
	for what, sql := range map[string]string{
		"explicit time": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now() - interval '1 day', 'system', 'x', 'x')`,
		"explicit default": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now(), 'system', 'x', 'x')`,
		"update":      `update account.audit_events set at = now() - interval '1 day'`,
		"delete":      `delete from account.audit_events`,
		"truncate":    `truncate account.audit_events`,
		"drop":        `drop table account.grants`,
		"new default": `alter table account.audit_events alter column at set default '2020-01-01'`,
	} {
		var refused *pgconn.PgError
		if _, err := role.Exec(t.Context(), sql); !errors.As(err, &refused) ||
			refused.Code != "42501" { // insufficient_privilege
			t.Errorf("%s: %v", what, err)
		}
	}
	// A transaction that began earlier does not give an event an earlier time.
	tx, err := role.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var began time.Time
	if err := tx.QueryRow(t.Context(), `select now()`).Scan(&began); err != nil {
		t.Fatal(err)
	}
	var earlier bool
	err = tx.QueryRow(t.Context(), `insert into account.audit_events (id, actor, action, subject)
		values ($1, 'system', 'x', 'x')
		returning at <= now()`, uuid.New()).
		Scan(&earlier)
	if err != nil || earlier {
		t.Errorf("the event has the time at which its transaction began: %v", err)
	}
}
