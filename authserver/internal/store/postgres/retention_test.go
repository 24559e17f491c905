package postgres_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// keepAll is a time for each kind that has a setting.
func keepAll() postgres.RetentionPeriods {
	return postgres.RetentionPeriods{
		postgres.SettingAuditEvents:   400 * day,
		postgres.SettingGrants:        90 * day,
		postgres.SettingTokens:        60 * day,
		postgres.SettingClients:       200 * day,
		postgres.SettingKeys:          120 * day,
		postgres.SettingInvitations:   50 * day,
		postgres.SettingConnectionLog: 40 * day,
	}
}

// kindOf returns the kind of a name.
func kindOf(t *testing.T, r *retention.Store, name string) retention.Kind {
	t.Helper()
	i := slices.IndexFunc(r.Kinds(), func(k retention.Kind) bool { return k.Name == name })
	if i < 0 {
		t.Fatalf("no kind %s", name)
	}
	return r.Kinds()[i]
}

// deletes runs the kind, and fails unless it deletes as many records as Status counts, which is want.
func deletes(t *testing.T, r *retention.Store, name string, want int) {
	t.Helper()
	k := kindOf(t, r, name)
	status, err := r.Status(t.Context(), k)
	if err != nil || status.Due != want || (status.Oldest == nil) != (want == 0) {
		t.Errorf("%s: %+v due, want %d: %v", name, status, want, err)
	}
	if deleted, complete, err := r.Delete(t.Context(), k); err != nil || deleted != int64(want) || !complete {
		t.Errorf("%s: %d deleted, complete %v, want %d: %v", name, deleted, complete, want, err)
	}
}

var inRetention = testkit.Once(fixture.New)

// retentionTest is ownStoreTest with a database that the tests of different kinds of records share.
func retentionTest(t *testing.T) *storeTest {
	t.Helper()
	t.Parallel()
	return storeTestIn(t, inRetention(t).For(t))
}

// grantEnding adds a grant of l.grant's client that ends then, and returns its id.
func (l *storeTest) grantEnding(state string, ends time.Time) uuid.UUID {
	l.Helper()
	id := uuid.New()
	l.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			created_at, ends_at, revoked_at)
		values ($1, 'connector', $2, $3, $4, '{}', 'x', $5::text, $6::timestamptz - interval '30 days', $6,
			case when $5 = 'revoked' then $6::timestamptz - interval '29 days' end)`,
		id, l.grant.ClientID, l.grant.UserID, l.grant.WorkspaceID, state, ends)
	return id
}

// ago returns the SQL of a time so many days ago, an hour on the given side of it.
func ago(keep time.Duration, hours int) string {
	return fmt.Sprintf("now() - interval '%d hours'", int(keep/time.Hour)+hours)
}

func TestRetention_DeletesDueRecordsOnly(t *testing.T) {
	l := ownStoreTest(t)
	keep := keepAll()
	r := l.Retention(keep)
	of := pgx.NamedArgs{"user": l.grant.UserID, "workspace": l.grant.WorkspaceID, "client": l.grant.ClientID}
	for _, c := range []struct {
		kind string
		keep time.Duration
		sql  string // with the time as %s
	}{
		{"audit events", keep[postgres.SettingAuditEvents], `insert into account.audit_events (id, at, actor, action,
			subject) values (gen_random_uuid(), %s, 'system', 'x', 'x')`},
		{"ended grants", keep[postgres.SettingGrants], `insert into account.grants (id, kind, client_id, user_id,
			tenant_id, permissions, resource, state, ends_at) values (gen_random_uuid(), 'connector', @client, @user,
			@workspace, '{}', 'x', 'active', %s)`},
		{"expired personal access tokens", keep[postgres.SettingTokens], `insert into account.personal_access_tokens
			(id, hash, user_id, tenant_id, name, permissions, expires_at) values (gen_random_uuid(),
			sha256(gen_random_uuid()::text::bytea), @user, @workspace, 'x', '{}', %s)`},
		{"deleted clients", keep[postgres.SettingClients], `insert into account.oauth_clients (id, kind, tenant_id,
			name, redirect_uris, required_permissions, token_endpoint_auth_method, deleted_at) values
			(gen_random_uuid(), 'confidential', @workspace, 'x', '{}', '{}', 'client_secret_json', %s)`},
		{"removed signing keys", keep[postgres.SettingKeys], `insert into account.signing_keys (kid, public_jwk,
			private_sealed, state, removed_at) values (gen_random_uuid()::text, '{}', '', 'removed', %s)`},
		{"ended invitations", keep[postgres.SettingInvitations], `insert into account.invitations (id, tenant_id, email,
			permissions, invited_by, token_hash, expires_at) values (gen_random_uuid(), @workspace, gen_random_uuid() ||
			'@example.org', '{x}', @user, sha256(gen_random_uuid()::text::bytea), %s)`},
		{"connection log", keep[postgres.SettingConnectionLog], `insert into account.connection_stops (id, tenant_id,
			client_id, stray, outcome, reason, request_id, at) values (gen_random_uuid(), @workspace, @client, false,
			'refused', 'x', 'x', %s)`},
		{"events", 30 * day, `insert into account.events (tenant_id, type, data, created_at) values (@workspace, 'x.y',
			'{}', %s)`},
		{"idempotency keys", day, `insert into account.idempotency_keys (tenant_id, user_id, route, key, body_hash,
			created_at) values (@workspace, @user, 'x', gen_random_uuid()::text, sha256('x'), %s)`},
		{"expired sessions", 0, `insert into account.sessions (token, data, expiry) values (gen_random_uuid()::text, '',
			%s)`},
		{"ended sign-ins", 90 * day, `insert into account.sign_ins (id, user_id, expires_at, method, address,
			user_agent) values (gen_random_uuid(), @user, %s, 'password', '', '')`},
		{"expired sign-in states", 0, `insert into account.ceremonies (secret_hash, binding_hash, purpose, data,
			expires_at) values (sha256(gen_random_uuid()::text::bytea), sha256('x'), 'x', '', %s)`},
		{"password resets", day, `insert into account.password_resets (token_hash, user_id, expires_at) values
			(sha256(gen_random_uuid()::text::bytea), @user, %s)`},
		{"requests for access", 30 * day, `with w as ( insert into account.tenants (id, organisation_id, name) select
			gen_random_uuid(), organisation_id, 'x' from account.tenants limit 1 returning id) insert into
			account.access_requests (user_id, tenant_id, permissions, application, member, asked_at) select @user, id,
			'{}', '', true, %s from w`},
		{"changes of e-mail addresses", day, `insert into account.email_changes (id, user_id, old_email, new_email,
			old_token_hash, new_token_hash, ended_at, outcome, expires_at) values (gen_random_uuid(), @user,
			'a@example.org', 'b@example.org', sha256(gen_random_uuid()::text::bytea),
			sha256(gen_random_uuid()::text::bytea), now(), 'stopped', %s)`},
		{"networks of credentials", 92 * day, `insert into account.credential_networks (tenant_id, credential_id,
			network, kind, user_id, first_used_at, last_used_at) values (@workspace, gen_random_uuid(),
			'203.0.113.0/24', 'connection', @user, now() - interval '1 year', %s)`},
		{"writers of usage", day, `insert into account.usage_writers (id, batch, written_at) values
			(gen_random_uuid(), 1, %s)`},
		{"finished mail jobs", 7 * day, `insert into account_jobs.river_job (state, args, kind, finalized_at,
			max_attempts) values ('completed', '{}', 'x', %s, 1)`},
	} {
		l.fixture.Exec(fmt.Sprintf(c.sql, ago(c.keep, 1)), of)
		l.fixture.Exec(fmt.Sprintf(c.sql, ago(c.keep, -1)), of)
		t.Run(c.kind, func(t *testing.T) {
			deletes(t, r, c.kind, 1)
			deletes(t, r, c.kind, 0)
		})
	}
	const ofUsage = 3 // see TestRetention_UsageIsKeptFor92Days
	if len(r.Kinds()) != 18+ofUsage {
		t.Errorf("%d kinds: add a row to this test", len(r.Kinds()))
	}
}

// G3, G7: a grant stays until its life has ended, even a revoked one, so that a superseded token is recognised. Zero
// days keep it for ever. R1: a process whose clock is fast deletes nothing early.
func TestRetention_RevokedGrantStaysUntilItsLifeEnds(t *testing.T) {
	l := ownStoreTest(t)
	keep := keepAll()
	keep[postgres.SettingGrants] = 2 * day
	r := l.Retention(keep)
	now := time.Now()
	alive := []uuid.UUID{
		l.grantEnding("revoked", now.Add(day)),
		l.grantEnding("revoked", now.Add(-day)),
		l.grantEnding("active", now.Add(-day)),
		l.grantEnding("pending", now.Add(day)),
	}
	for _, state := range []string{"revoked", "active", "pending"} {
		l.grantEnding(state, now.Add(-9999*day))
	}
	deletes(t, l.Retention(postgres.RetentionPeriods{}), "ended grants", 0)
	deletes(t, r, "ended grants", 3)
	deletes(t, r.At(func() time.Time { return now.AddDate(10, 0, 0) }), "ended grants", 0)
	l.wantCount(len(alive), "grants are left", `select count(*) from account.grants where id = any ($1)`, alive)
}

// In a chain of replaced tokens, the oldest is deleted first, and its successor keeps working.
func TestRetention_ReplacedTokensAreDeletedOldestFirst(t *testing.T) {
	l := retentionTest(t)
	r := l.Retention(keepAll())
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	for i, expires := range []string{ago(60*day, 9), "now() + interval '1 day'", ago(60*day, 5)} {
		var replaces *uuid.UUID
		if i > 0 {
			replaces = &ids[i-1]
		}
		l.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
				expires_at, replaces_id)
			values ($1, sha256($1::uuid::text::bytea), $2, $3, 'x', '{}', `+expires+`, $4)`,
			ids[i], l.grant.UserID, l.grant.WorkspaceID, replaces)
	}
	deletes(t, r, "expired personal access tokens", 1)
	l.wantCount(1, "live successors that name no predecessor",
		`select count(*) from account.personal_access_tokens where id = $1 and replaces_id is null`, ids[1])
	// The last one expired too, but its predecessor is alive.
	deletes(t, r, "expired personal access tokens", 0)
	l.fixture.Exec(`update account.personal_access_tokens set expires_at = `+ago(60*day, 2)+` where id = $1`, ids[1])
	deletes(t, r, "expired personal access tokens", 1)
	deletes(t, r, "expired personal access tokens", 1)
}

func TestRetention_ClientIsDeletedAfterItsGrants(t *testing.T) {
	l := retentionTest(t)
	r := l.Retention(keepAll())
	l.grantEnding("revoked", time.Now().Add(-100*day))
	l.fixture.Exec(`update account.oauth_clients set deleted_at = `+ago(200*day, 1)+` where id = $1`, l.grant.ClientID)
	l.fixture.Exec(`insert into account.client_secrets (client_id, hash) values ($1, sha256('x'))`, l.grant.ClientID)
	l.fixture.Exec(`insert into account.connection_stops (id, tenant_id, client_id, stray, outcome, reason, request_id)
		values (gen_random_uuid(), $1, $2, false, 'refused', 'x', 'x')`, l.grant.WorkspaceID, l.grant.ClientID)
	deletes(t, r, "deleted clients", 0)
	deletes(t, r, "ended grants", 1)
	deletes(t, r, "deleted clients", 1)
}

// A removed key has the time of its removal, even if an older program removed it, and is kept for longer than the
// lifetime of an access token.
func TestRetention_RemovedKeyStaysWhileItsTokensLive(t *testing.T) {
	l := retentionTest(t)
	r := l.Retention(keepAll())
	for _, state := range []string{"current", "retired"} {
		l.fixture.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state, created_at,
				retired_at)
			values ($1, '{}', '', $1, now() - interval '3 years', now() - interval '2 years')`, state)
	}
	deletes(t, r, "removed signing keys", 0)
	l.fixture.Exec(`update account.signing_keys set state = 'removed' where kid = 'retired'`)
	l.wantCount(1, "keys with the time of their removal",
		`select count(*) from account.signing_keys where removed_at > now() - interval '1 minute'`)
	deletes(t, r, "removed signing keys", 0)
	l.fixture.Exec(`update account.signing_keys set removed_at = ` + ago(120*day, 1) + ` where kid = 'retired'`)
	deletes(t, r, "removed signing keys", 1)
	l.wantCount(1, "current keys", `select count(*) from account.signing_keys where state = 'current'`)
}

// Usage is kept for 92 days after its day. What a process adds after the deletion of the user is deleted too.
func TestRetention_UsageIsKeptFor92Days(t *testing.T) {
	l := retentionTest(t)
	r := l.Retention(keepAll())
	add := func(user uuid.UUID, ago int) {
		l.fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests)
			values ($1, gen_random_uuid(), (now() at time zone 'UTC')::date - $2::int, 'readMe', 'connection', $3, 1)`,
			l.grant.WorkspaceID, ago, user)
	}
	for _, ago := range []int{0, 1, 92} {
		add(l.grant.UserID, ago)
	}
	deletes(t, r, "usage of credentials", 0)
	add(l.grant.UserID, 94)
	add(l.grant.UserID, 1000)
	deletes(t, r, "usage of credentials", 2)
	deletes(t, r, "usage of deleted users", 0)
	gone := l.fixture.User("gone@example.org")
	l.fixture.Exec(`update account.users set deleted_at = now() - interval '1 second', disabled_at = now(),
		email = id || '@deleted.invalid' where id = $1`, gone)
	add(gone, 0)
	deletes(t, r, "usage of deleted users", 1)
	l.fixture.Exec(`insert into account.credential_networks (tenant_id, credential_id, network, kind, user_id,
		first_used_at, last_used_at) select $1, gen_random_uuid(), '203.0.113.0/24', 'connection', u, now(), now()
		from unnest($2::uuid[]) u`, l.grant.WorkspaceID, []uuid.UUID{gone, l.grant.UserID})
	deletes(t, r, "networks of deleted users", 1)
	l.wantCount(3, "rows of usage are left", `select count(*) from account.usage where user_id = $1`, l.grant.UserID)
}

func TestRetention_AuditEventsStayForNinetyDays(t *testing.T) {
	l := retentionTest(t)
	for _, before := range []string{"now()", "now() - interval '89 days'", "null", "'infinity'"} {
		if err := l.Try(t.Context(), "select account.delete_audit_events("+before+", 500)"); err == nil {
			t.Errorf("the service may delete audit events before %s", before)
		}
	}
	if err := l.Try(t.Context(), "select account.delete_audit_events(now() - interval '91 days', 500)"); err != nil {
		t.Error(err)
	}
}

// R2: a row that another transaction has locked is skipped, and a long backlog is deleted in parts.
func TestRetention_SkipsLockedRowsAndDeletesBacklog(t *testing.T) {
	l := ownStoreTest(t)
	r := l.Retention(keepAll())
	l.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			ends_at)
		select gen_random_uuid(), 'connector', $1, $2, $3, '{}', 'x', 'active',
			now() - make_interval(days => 100, secs => n)
		from generate_series(1, 1700) n`, l.grant.ClientID, l.grant.UserID, l.grant.WorkspaceID)
	l.lock(`select from account.grants where tenant_id = $1 order by ends_at limit 3 for update`, l.grant.WorkspaceID)
	k := kindOf(t, r, "ended grants")
	var results [2]int64
	concurrently(len(results), func(i int) { // R3: two processes
		var err error
		results[i], _, err = r.Delete(t.Context(), k)
		wantErr(t, "delete", nil, err)
	})
	if left := l.count(`select count(*) from account.grants`); left != 3 || results[0]+results[1] != 1697 {
		t.Errorf("%v deleted, %d left", results, left)
	}
}

// R3: one process works on a kind within an hour. A run that was interrupted is continued.
func TestRetention_RunsOncePerHour(t *testing.T) {
	l := ownStoreTest(t)
	r := l.Retention(keepAll())
	run := func() map[string]int64 {
		t.Helper()
		deleted := map[string]int64{}
		err := r.RunOnce(t.Context(), func(kind string, n int64) { deleted[kind] += n }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
		}
		return deleted
	}
	l.grantEnding("active", time.Now().Add(-100*day))
	if got := run(); len(got) != len(r.Kinds()) || got["ended grants"] != 1 {
		t.Errorf("the first run: %v", got)
	}
	l.grantEnding("active", time.Now().Add(-100*day))
	if got := run(); len(got) != 0 {
		t.Errorf("a second run within the hour: %v", got)
	}
	status, err := r.Status(t.Context(), kindOf(t, r, "ended grants"))
	if err != nil || status.Due != 1 || status.Deleted != 1 || status.LastRun == nil || !status.Complete {
		t.Errorf("%+v, %v", status, err)
	}
	// The process that claimed the kind stopped before it deleted anything.
	l.fixture.Exec(`update account.retention_runs set started_at = now() - interval '61 minutes', complete = false
		where kind = 'ended grants'`)
	if got := run(); len(got) != 1 || got["ended grants"] != 1 {
		t.Errorf("the next hour: %v", got)
	}
}

func TestRetention_EventsTableStopsGrowing(t *testing.T) {
	l := ownStoreTest(t)
	const (
		days   = 56
		flatAt = 36 // some days after the first are deleted
		aDay   = 150
	)
	began, today := time.Now().AddDate(0, 0, -days), 30
	r := l.Retention(keepAll()).At(func() time.Time { return began.AddDate(0, 0, today) })
	const insert = `insert into account.events (tenant_id, type, data, created_at)
		select $1, 'programme.updated', '{"id": "00000000-0000-0000-0000-000000000000", "changed": ["name"]}', day
		from generate_series($2::timestamptz, $3, '1 day') day, generate_series(1, $4::integer)`
	l.fixture.Exec(insert, l.grant.WorkspaceID, began.AddDate(0, 0, 1), began.AddDate(0, 0, today), aDay)
	// Without the indexes: their deleted pages are not reused while an older transaction of any database of the server
	// is open.
	size := func() int { return l.count(`select pg_relation_size('account.events_earlier')`) }
	var flat int
	for today++; today <= days; today++ {
		now := began.AddDate(0, 0, today)
		l.fixture.Exec(insert, l.grant.WorkspaceID, now, now, aDay)
		l.fixture.Exec(`select account.number_events($1)`, l.grant.WorkspaceID)
		if _, complete, err := r.Delete(t.Context(), kindOf(t, r, "events")); err != nil || !complete {
			t.Fatal(complete, err)
		}
		l.fixture.Exec(`vacuum account.events_earlier`)
		if today == flatAt {
			flat = size()
		}
	}
	rows := l.count(`select count(*) from account.events`)
	if last := size(); rows > aDay*32 || rows < aDay*29 || last > flat*11/10 {
		t.Errorf("%d rows, %d bytes, and %d on day %d", rows, last, flat, flatAt)
	}
}

// Due records are found by an index, so that an hourly run does not read whole tables. The tables in small have few
// rows, so their plans may read a whole index. There are few signing keys.
func TestRetention_DueRecordsAreFoundByIndex(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	l := retentionTest(t)
	small := []string{
		"ended invitations", "deleted clients", "password resets", "requests for access", "changes of e-mail addresses",
		"ended sign-ins",
	}
	tx := l.lock("set local enable_seqscan = off")
	for _, k := range l.Retention(keepAll()).Kinds() {
		if k.Name == "removed signing keys" {
			continue
		}
		rows, _ := tx.Query(t.Context(), "explain (costs off) "+k.Due+" limit 500", time.Now().AddDate(-1, 0, 0))
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string]) // which returns the error of the query
		must(t, err)
		text := strings.Join(plan, "\n")
		whole := !strings.Contains(text, "Index Cond") && !slices.Contains(small, k.Name)
		if strings.Contains(text, "Seq Scan") || whole {
			t.Errorf("%s:\n%s", k.Name, text)
		}
	}
}
