package bench

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

var (
	many = flag.Int("many", 1_000_000,
		"how many rows of each kind there are in the part growth, and ten times as many as workspaces")
	only = flag.String("only", "", "a regular expression: the rows of the part growth that are measured and printed")
)

// TestGrowth compares an installation with little data and one with much data, in turn.
func TestGrowth(t *testing.T) {
	r := begin(t, "growth")
	if testing.Short() {
		*many = min(*many, 20_000)
	}
	little, much := scale{1000, 1000, 10, 1000}, scale{*many, *many, *many / 10, *many}
	var stacks []*seededStack
	var loads []load
	for _, size := range []scale{little, much} {
		running := harness.Private(t, harness.Options{Durable: true})
		name := map[bool]string{true: "little", false: "much"}[size == little]
		// Without a login, which would dominate the memory peak.
		e := newSeededStack(t, benchOf(t, running, accountOf(running, name), resourcesOf(running, name)), running, size)
		stacks, loads = append(stacks, e), append(loads, e.loads()...)
	}
	if *only != "" {
		r.rows(t, stacks)
		fmt.Print(r.String())
		return
	}
	all, order := measureAll(t, inTurn(loads), []int{32})
	r.growth(t, all, order, stacks[0], stacks[1])
	r.rows(t, stacks)
	r.write(t)
}

const listByStatus = "list of 50, by status"

func (e *seededStack) loads() []load {
	pat, workspace := e.product.Demo.Tokens.Owner, e.product.Demo.Workspaces.Main.ID
	return []load{
		{what: refreshing, at: e.account, worker: e.refreshAny},
		{what: listPAT, at: e.lists, worker: e.list(e.lists, pat)},
		{what: listByStatus, at: e.lists, worker: listOf(e.lists, workspace, pat, "?status=active")},
	}
}

// refreshAny makes each connection refresh its grants in random order, so that caches of recent requests do not help.
func (e *seededStack) refreshAny(connection int) (makeRequest, takeBody) {
	const connections = 32
	grant := 0
	return func() *http.Request {
			grant = connection + connections*rand.IntN(e.grants/connections)
			e.of.Lock()
			token := e.refreshed[grant]
			e.of.Unlock()
			if token == "" {
				token = e.refreshToken(grant)
			}
			form := e.connector.RefreshForm(token)
			form.Set("client_id", id("client", e.workspace(grant)).String())
			return e.token(e.account, form)
		}, func(body []byte) error {
			e.of.Lock()
			defer e.of.Unlock()
			e.refreshed[grant] = refreshTokenIn(body)
			return nil
		}
}

// walOfARefresh returns the number of WAL bytes that Postgres writes for a refresh, right after a checkpoint.
func (e *seededStack) walOfARefresh(t *testing.T) float64 {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	db := e.superuser(t)
	refresh := e.loads()[0]
	if e.grants <= 1000 {
		refresh.run(t, 32, *each) // modifies every page
	} else {
		_, err := db.Exec(ctx, "checkpoint")
		must(t, err)
	}
	written := func() (bytes float64) {
		must(t, db.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes))
		return bytes
	}
	before := written()
	refreshed := refresh.run(t, 32, *each)
	return (written() - before) / float64(len(refreshed.latencies))
}

func (r *report) growth(t *testing.T, all results, order []key, little, much *seededStack) {
	r.line("Two installations, which take turns, %d rounds of %s each at 32 connections; generator and stores "+
		"included. Postgres has 128 MB of", *rounds, *each)
	r.line("shared buffers in both, as it has by itself. A refresh is of any grant, by chance.\n")
	r.line("- little: %s\n- much: %s\n", little.scale, much.scale)
	r.table(all, order)
	for _, what := range []string{refreshing, listPAT, listByStatus} {
		ratio := all.ratio(key{what, "much", 32}, key{what, "little", 32})
		r.wants(what+", much of little", "at least 0.85", ratio, "", ratio >= 0.85)
	}
	r.wants("Redis, a live grant", "at most 450 bytes", much.grantBytesRedis, " bytes", much.grantBytesRedis <= 450)
	r.wants("Postgres, a live grant with its indexes", "at most 700 bytes", much.grantBytesPostgres, " bytes",
		much.grantBytesPostgres <= 700)
	r.line("\nIn Postgres an event of the audit log, such as a consent, takes %.0f bytes more, indexes included. A "+
		"refresh writes %.0f bytes of its log", much.auditBytes, much.walOfARefresh(t))
	r.line("(WAL) right after a checkpoint, where every page is touched for the first time and written whole, and "+
		"%.0f bytes where it is not.", little.walOfARefresh(t))
	for _, service := range []struct {
		name string
		at   target
	}{{"authserver", much.account}, {"resourceapi", much.lists}} {
		most := float64(harness.ProcessStatus(t, service.at.pids[0], "VmHWM:")) / 1024
		r.wants("most memory resident, "+service.name+", without logins", "below 80 MiB", most, " MiB", most < 80)
	}
}

// A job is work in the background, of which a run does a fixed amount.
type job struct {
	what string
	// run does it once and returns what it took, in processor time or by the clock.
	run func(t *testing.T, db *pgx.Conn) time.Duration
}

// due is how many records of each kind a run of retention deletes: fewer than one statement may.
const due = 400

func (e *seededStack) jobs() []job {
	retention := func(schema, last string, service *stack.Service, kinds map[string]string) job {
		return job{"retention, " + schema, func(t *testing.T, db *pgx.Conn) time.Duration {
			return e.retention(t, db, schema, last, service, kinds)
		}}
	}
	return []job{
		retention("account", "finished mail jobs", e.running.Authservers[0], dueInAccount()),
		retention("resource", "finished erasures", e.running.Resourceapi, dueInResource()),
		{"erasure of a supporter with 2,000 submissions", e.erasure},
		{"import of 1,000 programmes", e.imports},
	}
}

// dueInAccount returns the statements that add records of the account schema that are due, by their kind.
func dueInAccount() map[string]string {
	const old = "now() - interval '3 years'"
	of := fmt.Sprintf(" from generate_series(1, %d) n", due)
	return map[string]string{
		"ended grants": `insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, created_at, ends_at)
			select gen_random_uuid(), 'connector', ` + nth("assistant", "1") + `, @o::uuid, @m::uuid, '{}', 'x',
			'active', ` + old + `, ` + old + of,
		"expired personal access tokens": `insert into account.personal_access_tokens (id, hash, user_id, tenant_id,
			name, permissions, expires_at) select gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), @o::uuid,
			@m::uuid, 'x', '{}', ` + old + of,
		"deleted clients": `insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris,
			required_permissions, token_endpoint_auth_method, deleted_at) select gen_random_uuid(), 'confidential',
			@m::uuid, 'x', '{}', '{}', 'client_secret_json', ` + old + of,
		"ended invitations": `insert into account.invitations (id, tenant_id, email, permissions, invited_by,
			token_hash, expires_at, ended_at, outcome)
			select gen_random_uuid(), @m::uuid, gen_random_uuid() || '@example.org', '{x}', @o::uuid,
			sha256(gen_random_uuid()::text::bytea), ` + old + `, ` + old + `, 'accepted'` + of,
		"connection log": `insert into account.connection_stops (id, tenant_id, client_id, stray, outcome, reason,
			request_id, at)
			select gen_random_uuid(), @m::uuid, ` + nth("assistant", "1") + `, false, 'refused', 'x' || n, 'x',
			` + old + of,
		"usage of credentials": `insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id,
			requests) select @m::uuid, gen_random_uuid(), ` + old + `, 'readMe', 'connection', @o::uuid, 1` + of,
		"networks of credentials": `insert into account.credential_networks (tenant_id, credential_id, network, kind,
			user_id, first_used_at, last_used_at) select @m::uuid, gen_random_uuid(), '10.0.0.0/24', 'connection',
			@o::uuid, ` + old + `, ` + old + of,
		"ended sign-ins": `insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
			select gen_random_uuid(), @o::uuid, ` + old + `, 'password', '', ''` + of,
		"password resets": `insert into account.password_resets (token_hash, user_id, expires_at)
			select sha256(gen_random_uuid()::text::bytea), @o::uuid, ` + old + of,
		"requests for access": `insert into account.access_requests (user_id, tenant_id, permissions, application,
			member, asked_at) select ` + nth("member", "n") + `, @m::uuid, '{}', '', false, ` + old + of,
	}
}

// dueInResource is dueInAccount for the resource schema.
func dueInResource() map[string]string {
	const old = "now() - interval '12 years'"
	of := fmt.Sprintf(" from generate_series(1, %d) n", due)
	return map[string]string{
		"submissions": `insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped,
			status, created_at, finished_at) select gen_random_uuid(), @m::uuid, ` + nth("form", "2") + `,
			gen_random_uuid(), '{}', '[]', false, 'rejected', ` + old + `, ` + old + of,
		"finished imports": `insert into resource.imports (id, tenant_id, user_id, status, created_at, finished_at)
			select gen_random_uuid(), @m::uuid, @o::uuid, 'processed', ` + old + `, ` + old + of,
		"deliveries of webhooks": `insert into account.webhook_deliveries (id, tenant_id, webhook_id, created_at, cause,
			type, sequence, tried_at) select gen_random_uuid(), @m::uuid, ` + nth("endpoint", "1") + `, ` + old + `,
			'event', 'x', n, now()` + of,
		"finished erasures": `insert into resource.erasures (tenant_id, id, kind, subjects, user_id, request_id, status,
			finished_at) select @m::uuid, gen_random_uuid(), 'form', '{}', @o::uuid, '', 'processed', ` + old + of,
	}
}

// retention adds records that are due, starts the service again, which then looks for them, and returns how long it
// took from the first kind to the last. It fails unless as many records of each kind were deleted.
func (e *seededStack) retention(
	t *testing.T, db *pgx.Conn, schema, last string, service *stack.Service, kinds map[string]string,
) (took time.Duration) {
	ctx := context.WithoutCancel(t.Context())
	args := pgx.NamedArgs{"m": e.product.Demo.Workspaces.Main.ID, "o": e.product.Demo.Users.Owner.ID}
	service.Stop()
	for kind, sql := range kinds {
		if _, err := db.Exec(ctx, sql, args); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	runs := schema + ".retention_runs"
	_, err := db.Exec(ctx, "delete from "+runs)
	must(t, err)
	must(t, service.Restart(ctx))
	await.True(t, "the old records are deleted", func() (done bool) {
		must(t, db.QueryRow(ctx, "select exists (select from "+runs+" where kind = $1 and complete)", last).Scan(&done))
		return done
	})
	rows, _ := db.Query(ctx, "select kind, deleted, lead(started_at, 1, started_at) over (order by started_at) - "+
		"started_at from "+runs+" order by started_at") // the rows have the error
	var kind string
	var deleted int
	var each time.Duration
	var slowest []string
	_, err = pgx.ForEachRow(rows, []any{&kind, &deleted, &each}, func() error {
		took += each
		slowest = append(slowest, fmt.Sprintf("%s %.0f", kind, each.Seconds()*1e3))
		if _, wanted := kinds[kind]; wanted && deleted < due {
			t.Errorf("%d %s were deleted, want %d", deleted, kind, due)
		}
		return nil
	})
	must(t, err)
	t.Logf("%s: milliseconds of each kind: %s", e.scale, strings.Join(slowest, ", "))
	return took
}

// erasure erases a supporter who has sent many submissions, and returns the processor time that this takes.
func (e *seededStack) erasure(t *testing.T, db *pgx.Conn) time.Duration {
	ctx, supporter := context.WithoutCancel(t.Context()), uuid.New()
	for _, sql := range []string{
		`insert into resource.supporters (id, tenant_id, email, canonical)
			values (@supporter::uuid, @m::uuid, @supporter::uuid || '@example.org', true)`,
		`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, status,
			supporter_id, finished_at) select gen_random_uuid(), @m::uuid, ` + nth("form", "1") + `, gen_random_uuid(),
			'{}', '[]', false, 'processed', @supporter::uuid, now() from generate_series(1, 2000) n`,
	} {
		_, err := db.Exec(ctx, sql, pgx.NamedArgs{"m": e.product.Demo.Workspaces.Main.ID, "supporter": supporter})
		must(t, err)
	}
	return e.processor(func() {
		api := e.product.In(e.product.Demo.Workspaces.Main, e.product.Demo.Tokens.Owner)
		path := "/v1/engage/supporters/" + supporter.String()
		api.Send(t, http.MethodDelete, path, "", "").Wants(t, http.StatusAccepted)
		e.none(t, db, "select from resource.supporters where id = $1", supporter)
	})
}

// imports imports programmes and returns the processor time that this takes.
func (e *seededStack) imports(t *testing.T, db *pgx.Conn) time.Duration {
	var file strings.Builder
	file.WriteString("name\n")
	for n := range 1000 {
		fmt.Fprintf(&file, "Imported %d\n", n)
	}
	return e.processor(func() {
		api := e.product.In(e.product.Demo.Workspaces.Main, e.product.Demo.Tokens.Owner)
		path := harness.ListPath + "/imports"
		api.Send(t, http.MethodPost, path, "text/csv", file.String()).Wants(t, http.StatusAccepted)
		e.none(t, db, "select from resource.imports where tenant_id = $1 and status = 'accepted'",
			e.product.Demo.Workspaces.Main.ID)
	})
}

// none waits until the query finds no row.
func (e *seededStack) none(t *testing.T, db *pgx.Conn, query string, args ...any) {
	await.True(t, query, func() (done bool) {
		must(t, db.QueryRow(context.WithoutCancel(t.Context()), "select not exists ("+query+")", args...).Scan(&done))
		return done
	})
}

// processor returns the processor time that resourceapi and Postgres use while do runs.
func (e *seededStack) processor(do func()) (spent time.Duration) {
	before := e.lists.spent()
	do()
	for i, now := range e.lists.spent() {
		spent += now - before[i]
	}
	return spent
}
