package usage

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

var must = testkit.Must

// A site is a database with a member, who has a personal access token and a grant.
type site struct {
	testkit.Database
	t                                     *testing.T
	owner                                 *pgx.Conn
	workspace, user, client, token, grant uuid.UUID
	log                                   testkit.Log
}

const listed = "/v1/programmes/programmes"

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Database: testkit.NewDatabase(t), t: t}
	s.owner = testkit.Connect(t, s.Owner)
	for _, id := range []*uuid.UUID{&s.workspace, &s.user, &s.client, &s.token, &s.grant} {
		*id = uuid.New()
	}
	s.exec(`insert into account.organisations (id, name) values ($1, 'o')`, s.workspace)
	s.exec(`insert into account.tenants (id, organisation_id, name) values ($1, $1, 't')`, s.workspace)
	s.exec(`insert into account.users (id, email, name) values ($1, 'a@b.c', 'Ada')`, s.user)
	s.exec(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, '{}')`, s.workspace,
		s.user)
	s.exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('k', '{}', '', 'current')`)
	s.exec(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
		connector_platform, resource, token_endpoint_auth_method)
		values ($1, 'connector', $2, 'c', '{}', '{}', 'claude', 'https://api.example.org/v1', 'none')`, s.client,
		s.workspace)
	s.exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		values ($1, 'connector', $2, $3, $4, '{}', 'https://api.example.org/v1', 'active', now() + interval '1 day')`,
		s.grant, s.client, s.user, s.workspace)
	s.exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		values ($1, $2, $3, $4, 'p', '{}', now())`, s.token, credential.Hash("secret"), s.user, s.workspace)
	return s
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.owner.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// counter returns a counter of resourceapi as a role, which writes only when flush is called.
func (s *site) counter(url string) *Counter {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), url)
	must(s.t, err)
	s.t.Cleanup(pool.Close)
	c, err := newCounter(pool, openapi.Resourceapi, time.Now, slog.New(slog.NewTextHandler(&s.log, nil)))
	must(s.t, err)
	return c
}

// rows returns what is stored, by operation.
func (s *site) rows() map[string]Counts {
	s.t.Helper()
	all := map[string]Counts{}
	rows, _ := testkit.Connect(s.t, s.Owner).Query(s.t.Context(), `
		select operation || case when kind = 'connection' then '' else ' token' end
		|| case when service_id::text like '0000%' then '' else ' service' end, requests, refused, records
		from account.usage where day = (now() at time zone 'UTC')::date and user_id = $1`, s.user)
	var operation string
	var one Counts
	_, err := pgx.ForEachRow(rows, []any{&operation, &one.Requests, &one.Refused, &one.Records}, func() error {
		all[operation] = one
		return nil
	})
	must(s.t, err)
	return all
}

// send sends a request that the counter watches, to a route whose handler is serve.
func send(t testing.TB, c *Counter, method, pattern string, serve func(ctx context.Context) (status int)) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.RecordRoute(r.Context(), pattern)
		w.WriteHeader(serve(r.Context()))
	})
	web.Observe(handler, slog.New(slog.DiscardHandler), handler, c).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, pattern, nil))
}

func (s *site) asGrant() web.Caller {
	return web.Caller{Credential: s.grant, Workspace: s.workspace, User: s.user, Client: s.client}
}

func (s *site) asToken() web.Caller {
	return web.Caller{Credential: s.token, Workspace: s.workspace, User: s.user, Personal: true}
}

func (s *site) claims() accesstoken.Claims {
	return accesstoken.Claims{
		Subject:     s.user,
		Audience:    "https://api.example.org/v1",
		ClientID:    s.client.String(),
		WorkspaceID: s.workspace,
		GrantID:     s.grant,
		KeyID:       "k",
	}
}

func TestCounter_CountsEachRequestByOperation(t *testing.T) {
	s := newSite(t)
	presented := func(p Presented) func(context.Context) { return p.Record }
	claims := func(change func(*accesstoken.Claims)) Presented {
		c := s.claims()
		change(&c)
		return OfClaims(c)
	}
	known := func(c web.Caller) func(context.Context) {
		return func(ctx context.Context) { web.RecordCaller(ctx, c) }
	}
	introspected := s.asToken()
	introspected.Service = uuid.New()
	const name = "listProgrammes"
	for what, c := range map[string]struct {
		method, pattern string
		as              func(context.Context)
		records         int // AddRecords, unless it is negative
		status          int
		operation       string // "" if it does not count
		want            Counts
	}{
		"a list":               {"GET", listed, known(s.asGrant()), 7, 200, name, Counts{1, 0, 7}},
		"an empty list":        {"GET", listed, known(s.asGrant()), 0, 200, name, Counts{1, 0, 0}},
		"HEAD":                 {"HEAD", listed, known(s.asGrant()), 7, 200, name, Counts{1, 0, 0}},
		"one record":           {"GET", "/v1/me", known(s.asGrant()), -1, 200, "readMe", Counts{1, 0, 1}},
		"not modified":         {"GET", "/v1/me", known(s.asGrant()), -1, 304, "readMe", Counts{1, 0, 0}},
		"a write":              {"POST", listed, known(s.asGrant()), -1, 201, "createProgramme", Counts{1, 0, 1}},
		"a bad request":        {"POST", listed, known(s.asGrant()), -1, 400, "createProgramme", Counts{1, 0, 0}},
		"an outage":            {"GET", listed, known(s.asGrant()), 3, 503, name, Counts{1, 0, 0}},
		"401":                  {"GET", listed, known(s.asGrant()), -1, 401, name, Counts{1, 1, 0}},
		"403":                  {"GET", listed, known(s.asGrant()), -1, 403, name, Counts{1, 1, 0}},
		"429":                  {"GET", listed, known(s.asGrant()), -1, 429, name, Counts{1, 1, 0}},
		"a token":              {"GET", listed, known(s.asToken()), 1, 200, name + " token", Counts{1, 0, 1}},
		"MCP with a slash":     {"POST", "/mcp/", known(s.asGrant()), 0, 200, "sendMessage", Counts{1, 0, 0}},
		"introspected":         {"GET", "/v1/me", known(introspected), 0, 200, "readMe token service", Counts{1, 0, 0}},
		"no credential":        {"GET", listed, known(web.Caller{User: s.user}), -1, 200, "", Counts{}},
		"anonymous":            {"GET", listed, known(web.Caller{}), -1, 401, "", Counts{}},
		"no operation":         {"GET", "/v1/nothing", known(s.asGrant()), -1, 404, "", Counts{}},
		"of the other service": {"GET", "/v1/account/oauth/jwks", known(s.asGrant()), 1, 200, "", Counts{}},

		"a token that was not looked up": {
			"GET", listed, presented(OfHash(credential.Hash("secret"))), -1, 429, name + " token", Counts{1, 1, 0},
		},
		"an unknown token": {
			"GET", listed, presented(OfHash(credential.Hash("other"))), -1, 401, "", Counts{},
		},
		"a grant that was not looked up": {
			"GET", listed, presented(OfClaims(s.claims())), -1, 401, name, Counts{1, 1, 0},
		},
		"claims of another user": {
			"GET", listed, presented(claims(func(c *accesstoken.Claims) { c.Subject = uuid.New() })), -1, 401, "",
			Counts{},
		},
		"a removed key": {
			"GET", listed, presented(claims(func(c *accesstoken.Claims) { c.KeyID = "old" })), -1, 401, "",
			Counts{},
		},
		"looked up": {
			"GET", listed, func(ctx context.Context) {
				p := OfClaims(s.claims())
				p.Record(ctx)
				p.RecordStanding(ctx, &standing.Standing{
					CredentialID:        s.grant,
					UserID:              s.user,
					ClientID:            &s.client,
					CredentialWorkspace: s.workspace,
					Resource:            &p.Claims.Audience,
				})
			}, 2, 200, name, Counts{1, 0, 2},
		},
		"looked up and unknown": {
			"GET", listed, func(ctx context.Context) {
				p := OfHash(credential.Hash("secret"))
				p.Record(ctx)
				p.RecordStanding(ctx, nil)
			}, -1, 401, "", Counts{},
		},
	} {
		s.exec(`truncate account.usage`)
		counter := s.counter(s.Resourceapi)
		send(t, counter, c.method, c.pattern, func(ctx context.Context) int {
			if c.as(ctx); c.records >= 0 {
				web.AddRecords(ctx, c.records)
			}
			return c.status
		})
		must(t, counter.flush(t.Context()))
		got := s.rows()
		if c.operation == "" {
			if len(got) > 0 {
				t.Errorf("%s: %v, want none", what, got)
			}
		} else if len(got) != 1 || got[c.operation] != c.want {
			t.Errorf("%s: %v, want %q %v", what, got, c.operation, c.want)
		}
	}
}

// Each call counts, and the operation of the route does not.
func TestCounter_CountsCallsOfRequest(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	call := func(status int, calls ...web.Call) {
		send(t, c, "POST", "/mcp", func(ctx context.Context) int {
			web.RecordCaller(ctx, s.asGrant())
			web.AddRecords(ctx, 0)
			for _, one := range calls {
				*web.BeginCall(ctx, one.Operation) = one
			}
			return status
		})
	}
	call(200, web.Call{Operation: "list_programmes", Records: 5}, web.Call{Operation: "whoami", Records: 1},
		web.Call{Operation: "list_programmes", Refused: true})
	call(403, web.Call{Operation: "list_programmes"})
	call(200)
	must(t, c.flush(t.Context()))
	want := map[string]Counts{"list_programmes": {3, 2, 5}, "whoami": {1, 0, 1}, "sendMessage": {1, 0, 0}}
	if got := s.rows(); len(got) != len(want) || got["list_programmes"] != want["list_programmes"] ||
		got["whoami"] != want["whoami"] || got["sendMessage"] != want["sendMessage"] {
		t.Errorf("%v, want %v", got, want)
	}
}

// Memory is bounded: what exceeds it is dropped, which the log says once.
func TestCounter_DropsRowsBeyondItsBound(t *testing.T) {
	var log testkit.Log
	c, err := newCounter(nil, openapi.Resourceapi, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	for n := range maxRows + 2 {
		id := uuid.UUID{byte(n), byte(n >> 8), byte(n >> 16), 1}
		known := web.Tally{
			Caller:    &web.Caller{Credential: id},
			Presented: &Presented{Query: standing.Query{PATHash: id[:]}},
		}
		access, stranger := OfClaims(accesstoken.Claims{GrantID: id}), OfHash(append([]byte("x"), id[:]...))
		for _, tally := range []web.Tally{known, {Presented: &access}, {Presented: &stranger}} {
			c.count(tally, "readMe", 1, Counts{Requests: 1})
		}
	}
	if len(c.rows) != maxRows || len(c.presented) != maxPresented+maxUnproven || c.unproven != maxUnproven ||
		c.tokens.Len() > maxTokens {
		t.Errorf("%d rows, %d presented credentials, %d of them unproven, %d tokens", len(c.rows), len(c.presented),
			c.unproven, c.tokens.Len())
	}
	if n := strings.Count(log.String(), "too many"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// Texts that look like personal access tokens push out neither access tokens nor tokens that were used before, while
// none of them is looked up (C4).
func TestCounter_StrangersPushOutOnlyThemselves(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	token, access := OfHash(credential.Hash("secret")), OfClaims(s.claims())
	list := func(p Presented, known bool) {
		send(t, c, "GET", listed, func(ctx context.Context) int {
			p.Record(ctx)
			if known {
				p.RecordStanding(ctx, &standing.Standing{
					CredentialID:        s.token,
					Kind:                standing.PersonalAccessToken,
					CredentialWorkspace: s.workspace,
					UserID:              s.user,
				})
			}
			return 429
		})
	}
	list(token, true)
	for n := range maxUnproven + 2 {
		stranger := OfHash(credential.Hash(strconv.Itoa(n)))
		c.count(web.Tally{Presented: &stranger}, "listProgrammes", 1, Counts{Requests: 1})
	}
	list(token, false)
	list(access, false)
	must(t, c.flush(t.Context()))
	got := s.rows()
	if len(got) != 2 || got["listProgrammes token"] != (Counts{2, 2, 0}) || got["listProgrammes"] != (Counts{1, 1, 0}) {
		t.Errorf("%v", got)
	}
	for n := range maxUnproven { // the share is free again
		stranger := OfHash(credential.Hash(strconv.Itoa(n)))
		c.count(web.Tally{Presented: &stranger}, "listProgrammes", 1, Counts{Requests: 1})
	}
	if n := strings.Count(s.log.String(), "too many"); n != 1 || c.unproven != maxUnproven {
		t.Errorf("%d unproven, %d lines: %s", c.unproven, n, s.log.String())
	}
	// A token that was looked up is known, and stays so while it is used, however many others are.
	c = s.counter(s.Resourceapi)
	list(token, false)
	must(t, c.flush(t.Context()))
	for n := range maxTokens {
		if n == 1 {
			list(token, false)
		}
		c.tokens.Add(inflight.CredentialOf(OfHash(credential.Hash(strconv.Itoa(n))).Query), web.Caller{})
	}
	if list(token, false); c.unproven != 0 {
		t.Error("a token in use is not known")
	}
}

// A request of a known row allocates nothing to be counted.
func TestCounter_UsualRequestAllocatesNothing(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	send(t, c, "GET", listed, func(ctx context.Context) int {
		web.RecordCaller(ctx, s.asGrant())
		r := httptest.NewRequestWithContext(ctx, "GET", listed, nil)
		allocated := testing.AllocsPerRun(100, func() { c.Ends(r, web.Outcome{Route: listed, Status: 200}) })
		if allocated != 0 {
			t.Errorf("%v allocations", allocated)
		}
		return 200
	})
}

func BenchmarkCounter(b *testing.B) {
	c, err := newCounter(nil, openapi.Resourceapi, time.Now, slog.New(slog.DiscardHandler))
	must(b, err)
	send(b, c, "GET", listed, func(ctx context.Context) int {
		web.RecordCaller(ctx, web.Caller{Credential: uuid.New(), Workspace: uuid.New(), User: uuid.New()})
		r := httptest.NewRequestWithContext(ctx, "GET", listed, nil)
		for b.Loop() {
			c.Ends(r, web.Outcome{Route: listed, Status: 200})
		}
		return 200
	})
}
