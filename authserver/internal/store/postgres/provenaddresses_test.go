package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The upgrade finds the addresses that earlier data prove, and no others.
func TestProven_UpgradeFindsWhatEarlierDataProve(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t, testkit.NewDatabase(t))
	migrateBefore(t, "00330", database)
	owner, err := pgx.Connect(t.Context(), database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close(context.WithoutCancel(t.Context())) }()
	event := func(action, actor, ago string) string {
		return `insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, at)
			select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', id, ` + actor + `, '` + action + `',
			'user:' || id, now() - interval '` + ago + `' from account.users where id = $1`
	}
	const self = "'user:' || id"
	users := map[string]struct {
		made []string
		by   string
	}{
		"invited, by a link that may have been shown": {[]string{event(audit.UserAdded, self, "3 days")}, ""},
		"added by an operator": {[]string{
			event(audit.UserAdded, "'admin'", "3 days"), event(audit.UserPasswordReset, self, "1 day"),
		}, "operator"},
		"linked": {[]string{
			`insert into account.identities (issuer, subject, user_id) values ('i', $1::uuid::text, $1)`,
		}, "upstream"},
		"with an address that mailed links changed": {
			[]string{event(audit.UserEmailChanged, self, "1 day")}, "email_change",
		},
		"with an address that an operator changed": {[]string{event(audit.UserEmailChanged, "'admin'", "1 day")}, ""},
		"with a password that a mailed link set": {[]string{
			event(audit.UserResetRequested, "'anonymous'", "61 minutes"),
			event(audit.UserPasswordReset, self, "1 hour"),
		}, "reset"},
		"with a password that an operator's link set": {[]string{
			event(audit.UserResetRequested, "'admin'", "61 minutes"), event(audit.UserPasswordReset, self, "1 hour"),
		}, ""},
	}
	ids := map[string]uuid.UUID{}
	for name, user := range users {
		id := uuid.New()
		ids[name] = id
		for _, sql := range append([]string{
			`insert into account.users (id, email, name) values ($1, $1::uuid || '@example.org', 'x')`,
		}, user.made...) {
			if _, err := owner.Exec(t.Context(), sql, id); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	if _, err := postgres.Migrate(t.Context(), credential.Secret(database.Owner)); err != nil {
		t.Fatal(err)
	}
	for name, user := range users {
		var by string
		err := owner.QueryRow(t.Context(), `select coalesce(email_proven_by, '') from account.users where id = $1
			and (email_proven_at is null) = (email_proven_by is null)`, ids[name]).Scan(&by)
		if err != nil || by != user.by {
			t.Errorf("%s: proven by %q, want %q: %v", name, by, user.by, err)
		}
	}
}
