package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// authserver's own role appends audit events, and neither chooses their time nor changes them.
func TestAudit_RoleCannotBackdateOrChangeEvents(t *testing.T) {
	l := newLedger(t)
	if err := l.Record(t.Context(), audit.Event{Actor: "system", Action: "key.rotated", Subject: "key:x"}); err != nil {
		t.Fatalf("an event of its own: %v", err)
	}
	role, err := pgx.Connect(t.Context(), l.world.Database.Authserver)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = role.Close(t.Context()) }()
	for what, sql := range map[string]string{
		"a time of its choice": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now() - interval '1 day', 'system', 'x', 'x')`,
		"the default by name": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now(), 'system', 'x', 'x')`,
		"a change":      `update account.audit_events set at = now() - interval '1 day'`,
		"a deletion":    `delete from account.audit_events`,
		"a truncation":  `truncate account.audit_events`,
		"a new default": `alter table account.audit_events alter column at set default '2020-01-01'`,
	} {
		var refused *pgconn.PgError
		if _, err := role.Exec(t.Context(), sql); !errors.As(err, &refused) ||
			refused.Code != "42501" { // insufficient_privilege
			t.Errorf("%s: %v", what, err)
		}
	}
	// A transaction that began earlier does not make an event earlier.
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
	err = tx.QueryRow(t.Context(), `insert into account.audit_events (id, actor, action, subject) values ($1, 'system', 'x', 'x')
		returning at <= now()`, uuid.New()).
		Scan(&earlier)
	if err != nil || earlier {
		t.Errorf("the event has the time at which its transaction began: %v", err)
	}
}
