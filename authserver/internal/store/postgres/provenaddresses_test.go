package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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
	const linked = `insert into account.identities (issuer, subject, user_id, created_at)
		values ('i', $1::uuid::text, $1, now() - interval '1 day')`
	workspace, client := uuid.New(), uuid.New()
	for _, sql := range []string{
		`insert into account.organisations (id, name) values ($1, 'x')`,
		`insert into account.tenants (id, organisation_id, name) values ($1, $1, 'x')`,
		`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			connector_platform, resource, token_endpoint_auth_method)
			values ('` + client.String() + `', 'connector', $1, 'x', '{}', '{}', 'claude', 'r', 'none')`,
	} {
		if _, err := owner.Exec(t.Context(), sql, workspace); err != nil {
			t.Fatal(err)
		}
	}
	passkey := func(at string) string {
		return `insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
			transports, backup_eligible, backed_up, created_at) values (gen_random_uuid(), $1, 'x',
			uuid_send(gen_random_uuid()), 'k', 0, '', '{}', false, false, ` + at + `)`
	}
	token := func(at, revoked string) string {
		return `insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, created_at,
			expires_at, revoked_at) values (gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), $1,
			'` + workspace.String() + `', 'x', '{}', ` + at + `, now() + interval '1 day', ` + revoked + `)`
	}
	grant := func(at, state string) string {
		return `insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			created_at, ends_at, revoked_at) select gen_random_uuid(), 'connector', '` + client.String() + `', $1::uuid,
			'` + workspace.String() + `', '{}', 'r', s, ` + at + `, now() + interval '1 day',
			now() + case when s <> 'revoked' then null::interval else interval '0' end
			from (values ('` + state + `')) v (s)`
	}
	users := map[string]struct {
		made []string
		by   string
	}{
		"invited, by a link that may have been shown": {[]string{event(audit.UserAdded, self, "3 days")}, ""},
		"added by an operator": {[]string{
			event(audit.UserAdded, "'admin'", "3 days"), event(audit.UserPasswordReset, self, "1 day"),
		}, "operator"},
		"linked": {[]string{linked, passkey("now()"), token("now()", "null"), grant("now()", "active")}, "upstream"},
		"linked, with a password of unknown age": {
			[]string{linked, `update account.users set password_hash = 'x' where id = $1`}, "",
		},
		"linked after a passkey was added":  {[]string{linked, passkey("now() - interval '2 days'")}, ""},
		"linked after a token was created":  {[]string{linked, token("now() - interval '2 days'", "null")}, ""},
		"linked after a grant was approved": {[]string{linked, grant("now() - interval '2 days'", "active")}, ""},
		"linked while signed in": {[]string{linked, `insert into account.sign_ins (id, user_id, created_at, expires_at,
			method, address, user_agent) select gen_random_uuid(), $1::uuid, now() - interval '25 hours',
			now() - interval '13 hours', 'password', '', ''`}, ""},
		"linked after a token was revoked and a grant ended": {[]string{
			linked, token("now() - interval '2 days'", "now()"), grant("now() - interval '2 days'", "revoked"),
		}, "upstream"},
		"with a password that a mailed link set, with an older passkey": {
			[]string{event(audit.UserPasswordReset, self, "1 hour"), passkey("now() - interval '2 hours'")}, "",
		},
		"with a password that a mailed link set, with an older token": {
			[]string{event(audit.UserPasswordReset, self, "1 hour"), token("now() - interval '2 hours'", "null")}, "",
		},
		"with a password that a mailed link set, with an older authenticator app": {[]string{
			event(audit.UserPasswordReset, self, "1 hour"), `insert into account.authenticators (user_id, secret,
			last_step, created_at) values ($1, 'x', 0, now() - interval '2 hours')`,
		}, ""},
		"with a password that a mailed link set, with a later passkey": {[]string{
			`update account.users set password_hash = 'x' where id = $1`,
			event(audit.UserPasswordReset, self, "1 hour"), passkey("now()"),
		}, "reset"},
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
