package usage

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	"github.com/almonerhq/almoner/shared/rest"
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

const listProgrammes = "/v1/programmes/programmes"

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
		values ($1, 'connector', $2, $3, $4, '{}', 'https://api.example.org/v1', 'active', now() + interval '1 day')`, s.grant, s.client,
		s.user, s.workspace)
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
	rows, _ := testkit.Connect(s.t, s.Owner).Query(s.t.Context(), `select operation || case when kind = 'connection' then '' else ' token' end
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
		"a list":               {"GET", listProgrammes, known(s.asGrant()), 7, 200, name, Counts{1, 0, 7}},
		"an empty list":        {"GET", listProgrammes, known(s.asGrant()), 0, 200, name, Counts{1, 0, 0}},
		"HEAD":                 {"HEAD", listProgrammes, known(s.asGrant()), 7, 200, name, Counts{1, 0, 0}},
		"one record":           {"GET", "/v1/me", known(s.asGrant()), -1, 200, "readMe", Counts{1, 0, 1}},
		"not modified":         {"GET", "/v1/me", known(s.asGrant()), -1, 304, "readMe", Counts{1, 0, 0}},
		"a write":              {"POST", listProgrammes, known(s.asGrant()), -1, 201, "createProgramme", Counts{1, 0, 1}},
		"a bad request":        {"POST", listProgrammes, known(s.asGrant()), -1, 400, "createProgramme", Counts{1, 0, 0}},
		"an outage":            {"GET", listProgrammes, known(s.asGrant()), 3, 503, name, Counts{1, 0, 0}},
		"401":                  {"GET", listProgrammes, known(s.asGrant()), -1, 401, name, Counts{1, 1, 0}},
		"403":                  {"GET", listProgrammes, known(s.asGrant()), -1, 403, name, Counts{1, 1, 0}},
		"429":                  {"GET", listProgrammes, known(s.asGrant()), -1, 429, name, Counts{1, 1, 0}},
		"a token":              {"GET", listProgrammes, known(s.asToken()), 1, 200, name + " token", Counts{1, 0, 1}},
		"MCP with a slash":     {"POST", "/mcp/", known(s.asGrant()), 0, 200, "sendMessage", Counts{1, 0, 0}},
		"introspected":         {"GET", "/v1/me", known(introspected), 0, 200, "readMe token service", Counts{1, 0, 0}},
		"no credential":        {"GET", listProgrammes, known(web.Caller{User: s.user}), -1, 200, "", Counts{}},
		"anonymous":            {"GET", listProgrammes, known(web.Caller{}), -1, 401, "", Counts{}},
		"no operation":         {"GET", "/v1/nothing", known(s.asGrant()), -1, 404, "", Counts{}},
		"of the other service": {"GET", "/v1/account/tenants/{tenantId}/tokens", known(s.asGrant()), 1, 200, "", Counts{}},

		"a token that was not looked up": {
			"GET", listProgrammes, presented(OfHash(credential.Hash("secret"))), -1, 429, name + " token", Counts{1, 1, 0},
		},
		"an unknown token": {
			"GET", listProgrammes, presented(OfHash(credential.Hash("other"))), -1, 401, "", Counts{},
		},
		"a grant that was not looked up": {
			"GET", listProgrammes, presented(OfClaims(s.claims())), -1, 401, name, Counts{1, 1, 0},
		},
		"claims of another user": {
			"GET", listProgrammes, presented(claims(func(c *accesstoken.Claims) { c.Subject = uuid.New() })), -1, 401, "",
			Counts{},
		},
		"a removed key": {
			"GET", listProgrammes, presented(claims(func(c *accesstoken.Claims) { c.KeyID = "old" })), -1, 401, "",
			Counts{},
		},
		"looked up": {
			"GET", listProgrammes, func(ctx context.Context) {
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
			"GET", listProgrammes, func(ctx context.Context) {
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

// Two processes, one of each service, count and write at the same time (C1).
func TestCounter_TwoProcessesCountExactly(t *testing.T) {
	s := newSite(t)
	const senders, requests = 4, 200
	processes := []*Counter{s.counter(s.Resourceapi), s.counter(s.Authserver)}
	var sending sync.WaitGroup
	for _, c := range processes {
		for range senders {
			sending.Go(func() {
				for n := range requests {
					caller := s.asToken()
					if n%2 == 0 {
						caller = s.asGrant()
					}
					send(t, c, "GET", listProgrammes, func(ctx context.Context) int {
						web.RecordCaller(ctx, caller)
						web.AddRecords(ctx, 3)
						return 200
					})
				}
			})
		}
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	for _, c := range processes {
		writing.Go(func() {
			for {
				if err := c.flush(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	sending.Wait()
	close(done)
	writing.Wait()
	for _, c := range processes {
		must(t, c.flush(t.Context()))
	}
	want := Counts{senders * requests, 0, 3 * senders * requests}
	if got := s.rows(); got["listProgrammes"] != want || got["listProgrammes token"] != want {
		t.Errorf("%v, want %v twice", got, want)
	}
}

// cutting is a database whose connection is cut: before the first commit arrives, or after it was made.
type cutting struct {
	Database
	made bool // the commit
	left int  // commits until the connection is good
}

type cutTransaction struct {
	pgx.Tx
	from *cutting
}

func (c *cutting) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.Database.Begin(ctx)
	return cutTransaction{tx, c}, err
}

func (c cutTransaction) Commit(ctx context.Context) error {
	if c.from.left--; c.from.left < 0 {
		return c.Tx.Commit(ctx)
	}
	if c.from.made {
		_ = c.Tx.Commit(ctx)
	} else {
		_ = c.Tx.Rollback(ctx)
	}
	return errors.New("the connection is cut")
}

// A batch counts once, whether or not the commit whose outcome is unknown was made (C2). What is counted meanwhile
// follows in the next one.
func TestCounter_RepeatedBatchCountsOnce(t *testing.T) {
	for _, made := range []bool{true, false} {
		s := newSite(t)
		c := s.counter(s.Resourceapi)
		c.db = &cutting{c.db, made, 2}
		list := func() {
			send(t, c, "GET", listProgrammes, func(ctx context.Context) int {
				web.RecordCaller(ctx, s.asGrant())
				return 200
			})
		}
		list()
		for range 2 {
			if err := c.flush(t.Context()); err == nil {
				t.Error("a cut connection is no error")
			}
			list()
		}
		must(t, c.flush(t.Context()))
		must(t, c.flush(t.Context()))
		if got := s.rows()["listProgrammes"]; got != (Counts{3, 0, 3}) {
			t.Errorf("made %t: %v, want 3 requests", made, got)
		}
	}
}

// While Postgres does not answer, requests go on, and their counts stay (C3). Close writes them.
func TestCounter_OutageLosesNothing(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	list := func(as func(context.Context)) {
		send(t, c, "GET", listProgrammes, func(ctx context.Context) int {
			as(ctx)
			return 503
		})
	}
	asGrant := func(ctx context.Context) { web.RecordCaller(ctx, s.asGrant()) }
	asToken := OfHash(credential.Hash("secret")).Record
	list(asGrant)
	restore := s.Cut(t)
	for range 2 {
		if err := c.flush(t.Context()); err == nil {
			t.Error("an outage is no error")
		}
		list(asGrant)
		list(asToken)
	}
	restore()
	c.running.Go(c.run)
	c.Close()
	got := s.rows()
	if got["listProgrammes"] != (Counts{Requests: 3}) || got["listProgrammes token"] != (Counts{Requests: 2}) {
		t.Errorf("%v, want 3 requests and 2 of the token", got)
	}
}

// Memory is bounded: what exceeds it is dropped, which the log says once.
func TestCounter_DropsRowsBeyondItsBound(t *testing.T) {
	var log testkit.Log
	c, err := newCounter(nil, openapi.Resourceapi, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	for n := range maxRows + 2 {
		id := uuid.UUID{byte(n), byte(n >> 8), byte(n >> 16), 1}
		c.count(web.Use{Caller: &web.Caller{Credential: id}}, "readMe", 1, Counts{Requests: 1})
		c.count(web.Use{Presented: &Presented{Query: standing.Query{GrantID: id}}}, "readMe", 1, Counts{Requests: 1})
	}
	if len(c.rows) != maxRows || len(c.presented) != maxPresented {
		t.Errorf("%d rows and %d presented credentials", len(c.rows), len(c.presented))
	}
	if n := strings.Count(log.String(), "too many"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// A request of a known row allocates nothing to be counted.
func TestCounter_UsualRequestAllocatesNothing(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	send(t, c, "GET", listProgrammes, func(ctx context.Context) int {
		web.RecordCaller(ctx, s.asGrant())
		r := httptest.NewRequestWithContext(ctx, "GET", listProgrammes, nil)
		allocated := testing.AllocsPerRun(100, func() { c.Ends(r, web.Outcome{Route: listProgrammes, Status: 200}) })
		if allocated != 0 {
			t.Errorf("%v allocations", allocated)
		}
		return 200
	})
}

func BenchmarkCounter(b *testing.B) {
	c, err := newCounter(nil, openapi.Resourceapi, time.Now, slog.New(slog.DiscardHandler))
	must(b, err)
	send(b, c, "GET", listProgrammes, func(ctx context.Context) int {
		web.RecordCaller(ctx, web.Caller{Credential: uuid.New(), Workspace: uuid.New(), User: uuid.New()})
		r := httptest.NewRequestWithContext(ctx, "GET", listProgrammes, nil)
		for b.Loop() {
			c.Ends(r, web.Outcome{Route: listProgrammes, Status: 200})
		}
		return 200
	})
}

// The days of a list are valid and at most 92 apart.
func TestReadDays_AreAtMost92Apart(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.FixedZone("", -3600)) // the next day in UTC
	for raw, want := range map[string]string{
		"":                              "2026-11-02 2026-12-01",
		"limit=1":                       "2026-11-02 2026-12-01",
		"to=2026-03-01":                 "2026-01-31 2026-03-01",
		"from=2026-09-01":               "2026-09-01 2026-12-01",
		"from=2026-08-31":               "2026-08-31 2026-12-01",
		"from=2026-08-30":               "from: Must be at most 92 days before to.",
		"from=2026-01-01&to=2026-01-01": "2026-01-01 2026-01-01",
		"from=2026-01-02&to=2026-01-01": "from: Must not be after to.",
		"from=2026-12-02":               "from: Must not be after to.",
		"from=2026-1-1":                 "from: Must be a day: YYYY-MM-DD.",
		"to=0000-12-31":                 "to: Must be a day: YYYY-MM-DD.",
		"to=0001-01-01":                 "0001-01-01 0001-01-01",
		"to=2026-02-30":                 "to: Must be a day: YYYY-MM-DD.",
		"to=":                           "to: Must be a day: YYYY-MM-DD.",
		"to=2026-01-01T00:00:00Z":       "to: Must be a day: YYYY-MM-DD.",
		"to=2026-01-01&to=2026-01-02":   "to: Must be sent only once.",
	} {
		days, err := ReadDays(raw, now)
		got := days.From.Format(time.DateOnly) + " " + days.To.Format(time.DateOnly)
		if problems, invalid := errors.AsType[rest.Problems](err); invalid {
			got = strings.Join(problems.Lines(), "; ")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", raw, got, want)
		}
	}
}
