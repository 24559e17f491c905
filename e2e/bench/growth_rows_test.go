package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A row is a list, a page or a search that is measured with little and with much data.
type row struct {
	what string
	// path is that of a page that a person opens, below /settings, or of an API. In it, @workspace, @form and @endpoint
	// stand for the ids of the seeded ones.
	path string
	// seeded says how many rows there are where the product has a limit, or "".
	seeded string
	// connections are those that ask at once; 0 for growthConnections.
	connections int
}

// rowsOf returns the rows of everything that a person or a program can list or search.
func rowsOf() []row {
	const people, name, nobody = "person=", "Person+77", "zebra+crossing"
	const ofForm = "/v1/engage/forms/@form/submissions?limit=50"
	rows := []row{
		{what: "connections", path: "/settings/connectors?tenant=@workspace"},
		{what: "tokens", path: "/settings/developers?tenant=@workspace", seeded: "500 are the person's own"},
		{what: "members", path: "/settings/members?tenant=@workspace"},
		{what: "members, search that finds few", path: "/settings/members?tenant=@workspace&q=" + name},
		{what: "members, search that finds none", path: "/settings/members?tenant=@workspace&q=" + nobody},
		{what: "members, API", path: "/v1/account/tenants/@workspace/members?limit=50"},
		{
			what:   "invitations, API",
			path:   "/v1/account/tenants/@workspace/invitations?limit=50",
			seeded: "1,000 are open, the limit of a workspace",
		},
		{what: "usage, API", path: "/v1/account/tenants/@workspace/usage?limit=50"},
		{what: "usage, overview", path: "/settings/connectors/usage?tenant=@workspace"},
		{
			what:   "usage and networks of a connection",
			path:   "/settings/connectors/connection?tenant=@workspace&id=@grant",
			seeded: "50 networks, the limit of a connection",
		},
		{what: "audit log", path: "/settings/audit?tenant=@workspace"},
		{what: "connection log", path: "/settings/connectors/log?tenant=@workspace"},
		{what: "webhooks and deliveries, page", path: "/settings/developers/webhook?tenant=@workspace&id=@endpoint"},
		{what: "events", path: "/v1/events?limit=50"},
		{what: "forms", path: "/v1/engage/forms?limit=50"},
		{what: "submissions", path: ofForm},
		{what: "submissions, rejected", path: ofForm + "&status=rejected"},
		{what: "submissions, changed lately", path: ofForm + "&updatedSince=@lately"},
		{what: "supporters", path: "/v1/engage/supporters?limit=50"},
		{what: "webhooks", path: "/v1/webhooks?limit=50", seeded: "20, the limit of a workspace"},
		{what: "deliveries", path: "/v1/webhooks/@endpoint/deliveries?limit=50"},
		{what: "an import", path: "/v1/programmes/programmes/imports/@import"},
	}
	for _, log := range []struct{ what, page string }{
		{"audit log", "/settings/audit?tenant=@workspace&"},
		{"connection log", "/settings/connectors/log?tenant=@workspace&"},
	} {
		rows = append(rows,
			row{what: log.what + ", search for a person with few entries", path: log.page + people + name},
			row{what: log.what + ", search for nobody", path: log.page + people + nobody},
			row{what: log.what + ", search for the most used application", path: log.page + "application=Assistant+1"},
			row{what: log.what + ", search by request ID", path: log.page + "request=@request"})
	}
	const connections, programmes = "/settings/connectors?tenant=@workspace&q=", harness.ListPath + "?limit=50&q="
	return append(rows,
		row{what: "connections, search that finds many", path: connections + "Assistant"},
		row{what: "connections, search that finds few", path: connections + name},
		row{what: "connections, search that finds none", path: connections + nobody},
		row{what: "programmes, search that finds many", path: programmes + "lunch", connections: searches},
		row{what: "programmes, search that finds none", path: programmes + "zebra", connections: searches})
}

// growthConnections is the number of connections at which pages are opened and lists read.
const growthConnections = 8

// searches is the number of searches of a workspace's programmes that run at once (contract, section 6).
const searches = 2

// load returns the requests of a row.
func (e *seededStack) load(ctx context.Context, t *testing.T, db *pgx.Conn, r row, cookies string) load {
	t.Helper()
	workspace := e.product.Demo.Workspaces.Main.ID
	found := func(expression string) string {
		var out string
		must(t, db.QueryRow(ctx, "select ("+expression+")::text").Scan(&out))
		return out
	}
	fill := strings.NewReplacer("@workspace", workspace, "@form", found(nth("form", "1")),
		"@endpoint", found(nth("endpoint", "1")), "@import", found(nth("import", "1")),
		"@grant", found(nth("approval", "1")), "@request", found(nth("request", "7")),
		"@lately", url.QueryEscape(time.Now().UTC().Format(time.RFC3339)))
	at, path := e.lists, fill.Replace(r.path)
	header := http.Header{"Authorization": {"Bearer " + e.product.Demo.Tokens.Owner}, "X-Tenant-Id": {workspace}}
	if strings.HasPrefix(path, "/settings/") {
		header = http.Header{"Cookie": {cookies}}
	}
	if strings.HasPrefix(path, "/settings/") || strings.HasPrefix(path, "/v1/account/") {
		at = e.account
	}
	return load{what: r.what, at: at, worker: constant(func() *http.Request {
		request, _ := http.NewRequest(http.MethodGet, at.url+path, nil) // the arguments are constant
		request.Header = header
		return request
	})}
}

// rows measures each row in turn, and then each job, and writes their table.
func (r *report) rows(t *testing.T, stacks []*seededStack) {
	ctx := context.WithoutCancel(t.Context())
	var loads [2][]load
	var dbs [2]*pgx.Conn
	for i, e := range stacks {
		e.signIn(t)
		dbs[i] = e.superuser(t)
		for _, row := range rowsOf() {
			loads[i] = append(loads[i], e.load(ctx, t, dbs[i], row, e.owner.Cookies()))
		}
	}
	r.line("\nPages are opened by a person who is signed in, lists are read with a personal access token, by %d "+
		"connections", growthConnections)
	r.line("(programmes searched by %d); a job does a fixed amount of due work in each of %d runs. Cost is the "+
		"processor time of the", searches, *rounds)
	r.line("service and of Postgres, in microseconds a request.\n")
	r.line("| what | little, a second | much, a second | cost, little | cost, much | much of little | at least 0.85 " +
		"| limit |\n|---|--:|--:|--:|--:|--:|---|---|")
	wanted := regexp.MustCompile(*only)
	for n, row := range rowsOf() {
		if wanted.MatchString(row.what) {
			r.row(t, row, loads[0][n], loads[1][n])
		}
	}
	for n, job := range stacks[0].jobs() {
		if wanted.MatchString(job.what) {
			r.job(t, stacks, dbs, n)
		}
	}
}

// row measures a row of both installations in turn.
func (r *report) row(t *testing.T, what row, little, much load) {
	all, connections := results{}, cmp.Or(what.connections, growthConnections)
	of := func(l load) key { return key{l.what, l.at.name, connections} }
	for round := range *rounds + 1 {
		for _, l := range []load{little, much} {
			s, err := l.try(t, connections, *each)
			if err != nil && round == 0 { // the first round warms up
				s, err = l.try(t, connections, *each)
			}
			if err != nil {
				r.line("| %s | | | | | %v | no | %s |", what.what, err, what.seeded)
				t.Log(what.what, err)
				return
			}
			if round > 0 {
				all[of(l)] = append(all[of(l)], s)
			}
		}
	}
	cost := func(l load) float64 {
		return all.median(of(l), func(s sample) float64 { return s.cost(0) + s.cost(1) })
	}
	ratio := all.ratio(of(much), of(little))
	t.Logf("%s: %.2f", what.what, ratio)
	r.line("| %s | %.0f | %.0f | %.0f | %.0f | %.2f | %s | %s |", what.what, all.median(of(little), sample.perSecond),
		all.median(of(much), sample.perSecond), cost(little), cost(much), ratio, yesNo(ratio >= 0.85),
		what.seeded)
}

func yesNo(met bool) string { return map[bool]string{true: "yes", false: "no"}[met] }

// job runs a job of both installations in turn.
func (r *report) job(t *testing.T, stacks []*seededStack, dbs [2]*pgx.Conn, n int) {
	var took [2][]float64
	for range *rounds {
		for i, e := range stacks {
			took[i] = append(took[i], e.jobs()[n].run(t, dbs[i]).Seconds()*1e3)
		}
	}
	little, much := middle(took[0]), middle(took[1])
	t.Logf("%s: %.2f", stacks[0].jobs()[n].what, little/much)
	r.line("| %s | %.0f ms | %.0f ms | | | %.2f | %s | |", stacks[0].jobs()[n].what, little, much, little/much,
		yesNo(little/much >= 0.85))
}

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
	db := e.superuser(t)
	args := pgx.NamedArgs{
		"m": e.product.Demo.Workspaces.Main.ID, "o": e.product.Demo.Users.Owner.ID, "n": e.rows, "callback": callback,
		"resource": e.resource(),
	}
	for _, sql := range append(append(preparing(), accountRows()...), resourceRows()...) {
		if _, err := db.Exec(ctx, sql, args); err != nil {
			t.Fatalf("%.300s: %v", sql, err)
		}
	}
}

// superuser connects to the product's database as the superuser of the private server.
func (e *seededStack) superuser(t *testing.T) *pgx.Conn {
	t.Helper()
	owner, err := url.Parse(e.running.DatabaseURL)
	must(t, err)
	return testkit.Connect(t, testkit.InDatabase(e.running.Postgres.URL, strings.TrimPrefix(owner.Path, "/")))
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
		`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests)
			select @m::uuid, ` + grant + `, (now() at time zone 'UTC')::date - n % 92, 'list_programmes', 'connection',
				` + user + `, 1` + eachOfN,
		fmt.Sprintf(`insert into account.credential_networks (tenant_id, credential_id, network, kind, user_id,
				first_used_at, last_used_at, is_first)
			select @m::uuid, %s, set_masklen(('10.0.' || k || '.0')::cidr, 24), 'connection', %s,
				now() - n * interval '1 minute', now() - n * interval '1 minute', k = 0
			from generate_series(1, @n::int) n, generate_series(0, case when n = 1 then %d else 0 end) k`,
			grant, user, standing.NetworksAtMost-1),
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
