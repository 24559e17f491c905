package bench

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Numbers of rows that are alike with little and with much data, because the product limits them or because the row of
// the table is about something else.
const (
	assistants      = 20   // connectors in the workspace
	openInvitations = 1000 // of the workspace (postgres.maxOpenInvitations)
	endpoints       = 20   // of the workspace (webhook.MaxEndpoints)
	ownTokens       = 500  // of the person whose page is opened
	stopsKept       = 50   // of each connector (postgres.keptAttempts)
)

// seedRows adds rows of every kind to the workspace whose pages and lists are measured, and others to the other
// workspaces. It writes them without triggers and checks of references. The ids of a kind ascend, as those of the
// product do.
func (e *seededStack) seedRows(ctx context.Context, t *testing.T) {
	t.Helper()
	db := e.superuser(ctx, t)
	defer func() { _ = db.Close(ctx) }()
	args := pgx.NamedArgs{
		"m": e.product.Demo.Workspaces.Main.ID, "o": e.product.Demo.Users.Owner.ID, "n": e.rows, "callback": callback,
		"resource": e.resource(),
	}
	for _, sql := range append(append(preparing(), accountRows()...), resourceRows()...) {
		if _, err := db.Exec(ctx, sql, args); err != nil {
			t.Fatalf("%.300s: %v", sql, err)
		}
	}
	_, err := db.Exec(ctx, "vacuum (analyze)")
	must(t, err)
}

// superuser connects to the product's database as the superuser of the private server.
func (e *seededStack) superuser(ctx context.Context, t *testing.T) *pgx.Conn {
	t.Helper()
	owner, err := url.Parse(e.running.DatabaseURL)
	must(t, err)
	address, err := url.Parse(e.running.Postgres.URL)
	must(t, err)
	address.Path = owner.Path
	db, err := pgx.Connect(ctx, address.String())
	must(t, err)
	return db
}

// nth returns the SQL of the id of the nth row of a kind.
func nth(kind, n string) string {
	prefix := strings.ReplaceAll(id(kind, 0).String(), "-", "")[:8]
	return fmt.Sprintf("('%s-0000-4000-8000-' || lpad(to_hex(%s), 12, '0'))::uuid", prefix, n)
}

const eachOfN = " from generate_series(1, @n::int) n"

func preparing() []string {
	return []string{
		`set session_replication_role = replica`,
		`set synchronous_commit = off`,
		`select account.make_event_months(), account.make_audit_months(), resource.make_submission_months()`,
		`create temp table spaces as select id, row_number() over (order by id) - 1 as k from account.tenants
			where id <> @m::uuid`,
		`create unique index on spaces (k)`,
		`analyze spaces`,
	}
}

// elsewhere returns the SQL of a workspace by the number n of a row.
const elsewhere = "(select id from spaces where k = n % (select count(*) from spaces))"

// accountRows returns the statements that add the rows of the account schema.
func accountRows() []string {
	user, app, grant := nth("member", "1 + n % @n::int"), nth("assistant", "1 + n % 20"), nth("approval", "n")
	person := nth("member", "1 + (case when n % 100 = 0 then 76 else 100 + n % 50 end) % @n::int")
	return []string{
		`insert into account.users (id, email, name, email_proven_at, email_proven_by) select
			` + nth("member", "n") + `, 'person' || n || '@example.org', 'Ada Person ' || n || '.', now(), 'operator'
			from generate_series(1, @n::int) n`,
		`insert into account.memberships (tenant_id, user_id, permissions, created_at) select @m::uuid, ` +
			nth("member", "n") + `, array['programmes:read:programmes'], now() - n * interval '10 seconds'
			from generate_series(1, @n::int) n`,
		fmt.Sprintf(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
				connector_platform, resource, token_endpoint_auth_method, created_by)
			select %s, 'connector', @m::uuid, 'Assistant ' || n, array[@callback], array['programmes:read:programmes'],
				'claude', @resource, 'none', @o::uuid from generate_series(1, %d) n`,
			nth("assistant", "n"), assistants),
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, generation,
				refresh_hash, code_binding, created_at, last_used_at, ends_at)
			select ` + grant + `, 'connector', ` + app + `, ` + user + `, @m::uuid, array['programmes:read:programmes'],
				@resource, 'active', 2, sha256(n::text::bytea), sha256(n::text::bytea),
				now() - n * interval '2 seconds', now(), now() + interval '29 days'` + eachOfN,
		fmt.Sprintf(`insert into account.connection_stops (id, tenant_id, client_id, user_id, stray, outcome, reason,
				request_id, at)
			select %s, @m::uuid, %s, %s, false, 'refused', 'access_denied', n::text, now() - n * interval '1 hour'
			from generate_series(1, %d) n`, nth("stop", "n"), app, user, assistants*stopsKept),
		fmt.Sprintf(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
				created_at, expires_at)
			select %s, sha256(('token ' || n)::bytea), case when n <= %d then @o::uuid else %s end, @m::uuid,
				'Token ' || n, array['programmes:read:programmes'], now() - n * interval '2 seconds',
				now() + interval '60 days' from generate_series(1, @n::int + %[2]d) n`,
			nth("token", "n"), ownTokens, user),
		`insert into account.token_uses select tenant_id, id, now() from account.personal_access_tokens
			on conflict do nothing`,
		fmt.Sprintf(`insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
				created_at, expires_at)
			select %s, @m::uuid, 'invited' || n || '@example.org', array['programmes:read:programmes'], @o::uuid,
				sha256(('invitation ' || n)::bytea), now() - n * interval '1 minute', now() + interval '6 days'
			from generate_series(1, %d) n`, nth("invitation", "n"), openInvitations),
		`insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash, created_at,
				expires_at, ended_at, outcome)
			select ` + nth("answered", "n") + `, ` + elsewhere + `, 'invited' || n || '@example.org',
				array['programmes:read:programmes'], @o::uuid, sha256(('answered ' || n)::bytea),
				now() - interval '10 days', now() - interval '3 days', now() - interval '4 days', 'accepted'` + eachOfN,
		`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail, request_id)
			select ` + nth("event", "n") + `, now() - n * interval '2 seconds', @m::uuid, p, 'user:' || p,
				'grant.consented', 'grant:' || ` + grant + `, jsonb_build_object('client_id', (` + app + `)::text,
				'permissions', array['programmes:read:programmes']), ` + nth("request", "n") + `::text
			from generate_series(1, @n::int) n, lateral (select ` + person + ` p) people`,
		`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
			select ` + nth("sign-in", "n") + `, ` + user + `, now() + interval '10 days', 'password', '', ''` + eachOfN,
		`insert into account.password_resets (token_hash, user_id, expires_at)
			select sha256(('reset ' || n)::bytea), ` + user + `, now() + interval '1 hour'` + eachOfN,
		`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
			select ` + nth("asker", "n") + `, ` + elsewhere + `, '{}', '', false` + eachOfN,
		fmt.Sprintf(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
				created_at, enabled, reason, disabled_at)
			select %s, case when n <= %d then @m::uuid else %s end, @o::uuid, 'https://hooks.example.org/' || n,
				array['programme.created'], 'x', sha256('key'), 0, now() - n * interval '1 minute', false, 'user', now()
			from generate_series(1, %[2]d + (select count(*) from spaces)) n`,
			nth("endpoint", "n"), endpoints, elsewhere),
		`insert into account.webhook_deliveries (id, tenant_id, webhook_id, created_at, cause, type, sequence, tried_at,
				status, took_ms)
			select ` + nth("delivery", "n") + `, @m::uuid, ` + nth("endpoint", "1") + `,
				now() - n * interval '100 milliseconds', 'event', 'programme.created', n, now(), 200, 3` + eachOfN,
		`insert into account.events (tenant_id, type, data, created_at, sequence)
			select @m::uuid, 'programme.created', jsonb_build_object('id', ` + nth("programme", "n") + `),
				now() - (@n::int + 1 - n) * interval '1 second',
				n + (select coalesce(max(last), 0) from account.event_sequences where tenant_id = @m::uuid)` + eachOfN,
		`insert into account.event_sequences as s (tenant_id, last) values (@m::uuid, @n::int)
			on conflict (tenant_id) do update set last = s.last + @n::int`,
	}
}

// resourceRows returns the statements that add the rows of the resource schema.
func resourceRows() []string {
	return []string{
		`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_at)
			select ` + nth("form", "n") + `, @m::uuid, 'alm_form_' || n, 'Volunteers ' || n,
				'[{"name":"email","kind":"email","label":"E-mail","required":true}]', '{}',
				now() - n * interval '1 second'` + eachOfN,
		`insert into resource.supporters (id, tenant_id, email, name, canonical, created_at)
			select ` + nth("supporter", "n") + `, @m::uuid, 'person' || n || '@example.org', 'Person ' || n, true,
				now() - n * interval '1 second'` + eachOfN,
		`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, status,
				supporter_id, created_at, finished_at)
			select ` + nth("submission", "n") + `, @m::uuid, ` + nth("form", "1") + `, ` + nth("sent", "n") + `,
				jsonb_build_object('email', 'person' || n || '@example.org'), '[]', false,
				case when n % 100 = 7 then 'rejected' else 'processed' end,
				case when n % 100 <> 7 then ` + nth("supporter", "n") + ` end, now() - n * interval '1 second',
				now() - n * interval '1 second'` + eachOfN,
		`insert into resource.imports (id, tenant_id, user_id, status, imported, created_at, finished_at)
			select ` + nth("import", "n") + `, @m::uuid, @o::uuid, 'processed', 10, now() - n * interval '1 second',
				now() - n * interval '1 second'` + eachOfN,
		`insert into resource.erasures (tenant_id, id, kind, subjects, user_id, request_id, status, finished_at)
			select @m::uuid, ` + nth("erasure", "n") + `, 'supporter', array[` + nth("erased", "n") + `], @o::uuid, '',
				'processed', now()` + eachOfN,
		`insert into resource.supporters_left (supporter_id, tenant_id)
			select ` + nth("supporter", "n") + `, @m::uuid` + eachOfN + ` where n % 10 = 0`,
	}
}
