package postgres

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestRoles_ReachTheirOwnRecordsOnly(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for url, forbidden := range map[string][]string{
		w.Database.Resourceapi: {
			"select * from account.users",
			"select * from account.personal_access_tokens",
			"select * from account.tenant_modules",
			"update account.memberships set permissions = '{}'",
			"drop table resource.programmes",
			"drop table resource.submissions",
			"create table resource.mine (x int)",
			"create table public.mine (x int)",
			"delete from goose_resourceapi",
		},
		w.Database.Authserver: {
			"select * from resource.submissions",
			"select * from account.module_state(gen_random_uuid(), 'engage')",
		},
	} {
		session := postgrestest.Connect(t, url)
		for _, statement := range forbidden {
			if _, err := session.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "42501") {
				t.Errorf("%s may: %s (%v)", session.Config().User, statement, err)
			}
		}
	}
}

func TestOpen_ErrorDoesNotQuoteURL(t *testing.T) {
	t.Parallel()
	const url = "postgres://user:swordfish@host:port:x/db"
	_, err := Open(t.Context(), credential.Fixed(url), Limits{Connections: 2})
	_, migrateErr := Migrate(t.Context(), url)
	if err == nil || migrateErr == nil || strings.Contains(err.Error()+migrateErr.Error(), "swordfish") {
		t.Errorf("%v, %v", err, migrateErr)
	}
}

// P5: an import stays waiting if its worker dies, and the next worker does it once.
func TestP5_ImportIsDoneOnceAfterFailure(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	w, store := ownStore(t)
	workspaceID := w.Workspace()
	id := orFail(acceptImport(t.Context(), store, workspaceID, strings.Repeat("x\n", 500)))(t)

	// The insert fails half way, as if the server had stopped: none of its rows stay, and the import waits.
	w.Exec(`create function resource.fail() returns trigger language plpgsql as $$ begin
		if (select count(*) from resource.programmes) >= 0 and new.name = 'x' and random() < 0.02
		then raise exception 'gone' using errcode = '57P01'; end if; return new; end $$`)
	w.Exec("create trigger fail before insert on resource.programmes for each row execute function resource.fail()")
	if found, err := store.ProcessImport(t.Context()); !found || err == nil {
		t.Fatalf("%v, %v", found, err)
	}
	w.Wants(0, "select count(*) from resource.programmes")
	if i := orFail(store.Import(t.Context(), workspaceID, id))(t); i.Status != programme.ImportAccepted {
		t.Errorf("%+v", i)
	}
	processes(t, store, false) // not tried again at once
	w.Exec("drop trigger fail on resource.programmes")
	w.Exec("update resource.imports set try_at = now()")

	var times atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			found, err := store.ProcessImport(t.Context())
			if found {
				times.Add(1)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	i := orFail(store.Import(t.Context(), workspaceID, id))(t)
	if times.Load() != 1 || i.Imported != 500 || i.Status != programme.ImportProcessed {
		t.Errorf("%d workers did it, %+v", times.Load(), i)
	}
	w.Wants(500, "select count(*) from resource.programmes")
}

// The client and the server cancel a statement after a second, or after the time that callers wait for a Postgres that
// does not respond, whichever is longer, whatever the URL says.
func TestOpen_StatementTimeoutIsAtLeastWait(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	separator := "?"
	if strings.Contains(w.Database.Resourceapi, "?") {
		separator = "&"
	}
	url := w.Database.Resourceapi + separator + "default_query_exec_mode=simple_protocol&statement_timeout=0"
	for wait, want := range map[time.Duration]string{0: "1s", time.Minute: "1min"} {
		source := credential.Fixed(credential.Secret(url))
		store := orFail(Open(t.Context(), source, Limits{Connections: 4, Wait: wait}))(t)
		t.Cleanup(store.Close)
		if mode := store.pool.Config().ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement {
			t.Errorf("mode %s", mode)
		}
		connection := orFail(store.pool.Acquire(t.Context()))(t)
		var server string
		err := connection.QueryRow(t.Context(), "show statement_timeout").Scan(&server)
		connection.Release()
		if client := store.pool.timeout; err != nil || server != want || client != max(time.Second, wait) {
			t.Errorf("wait %s: limits of %s and %s, %v, want %s", wait, server, client, err, want)
		}
		store.pool.timeout = 50 * time.Millisecond
		if _, err := store.pool.Exec(t.Context(), "select pg_sleep(5)"); !unavailable(err) {
			t.Errorf("a longer statement: %v", err)
		}
	}
}

func TestUnavailable_LostNodeOfClusterInvitesRetry(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"failure on connection marked as essential: node2.internal:5432":            true,
		"execution cannot recover from multiple connection failures":                true,
		"could not commit transaction for shard 102085 on at least one active node": true,
		"server closed the connection unexpectedly\n\tThis probably means":          true,
		"cache lookup failed for relation 16384":                                    false,
	} {
		if got := unavailable(&pgconn.PgError{Code: "XX000", Message: message}); got != want {
			t.Errorf("%s: %t", message, got)
		}
	}
}

// While the primary of a URL with several hosts is down, a replica may lack the latest revocations. The read-only
// server is in place of the replica.
func TestStore_DoesNotReadFromReplica(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for readOnly, want := range map[string]bool{"off": true, "on": false} {
		address := orFail(url.Parse(w.Database.Resourceapi))(t)
		address.Host = "127.0.0.1:1," + address.Host
		query := address.Query()
		query.Set("default_transaction_read_only", readOnly)
		address.RawQuery = query.Encode()
		url := credential.Fixed(credential.Secret(address.String()))
		store := orFail(Open(t.Context(), url, Limits{Connections: 4, Wait: testkit.SilentStoreWait}))(t)
		t.Cleanup(store.Close)
		_, err := store.Engage().WorkspaceExists(t.Context(), w.Workspace())
		if got := err == nil; got != want {
			t.Errorf("read only %s: %v", readOnly, err)
		}
	}
}

func TestReady_RequiresEveryMigration(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	ready := func() error {
		return open(t, w).Ready(t.Context())
	}
	waits := func(what string) {
		t.Helper()
		if refused, ok := errors.AsType[*apierr.Error](ready()); !ok || refused.Kind != apierr.Unavailable {
			t.Errorf("%s: %v, want an unavailable service", what, refused)
		}
	}
	applied, err := Migrate(t.Context(), w.Database.Owner)
	if unready := ready(); err != nil || len(applied) > 0 || unready != nil {
		t.Errorf("with every migration: applied %v, %v; not ready: %v", applied, err, unready)
	}
	w.Exec("insert into goose_resourceapi (version_id, is_applied) values (99999, true)") // applied by a newer program
	if err := ready(); err != nil {
		t.Errorf("not ready on a newer schema: %v", err)
	}
	w.Exec("alter function " + standing.Function + " rename to later")
	waits("without authserver's migrations")
	w.Exec("alter function account.later rename to standings")
	w.Exec("alter function account.events_after rename to later")
	waits("without authserver's migration of events")
	w.Exec("alter function account.later rename to events_after")
	w.Exec("delete from goose_resourceapi where version_id = 160")
	waits("without a migration")
	w.Exec("revoke select on goose_resourceapi from almoner_resourceapi")
	waits("without the right to read")
}

// F26: the first request after a restart of Postgres succeeds.
func TestOpen_DoesNotUseClosedConnections(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	for range 2 {
		for _, pool := range []*database{store.pool, store.searches, store.probe} {
			orFail(pool.Exec(t.Context(), "select 1"))(t)
		}
		w.Database.EndSessions(t)
	}
}

// Requests get a checked connection from every pool, also from one with a single connection. A probe is itself a ping.
func TestOpen_PingsIdleConnectionsOfRequests(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for _, connections := range []int32{1, 4} {
		store := orFail(Open(t.Context(), w.URL(), Limits{Connections: connections, Wait: testkit.StoreWait}))(t)
		t.Cleanup(store.Close)
		for pool, want := range map[*database]bool{store.pool: true, store.searches: true, store.probe: false} {
			connection := orFail(pool.Acquire(t.Context()))(t)
			idle := pgxpool.ShouldPingParams{Conn: connection.Conn(), IdleDuration: time.Hour}
			if got := pool.Config().ShouldPing(t.Context(), idle); got != want {
				t.Errorf("%d connections, pool of %d: ping is %t", connections, pool.Config().MaxConns, got)
			}
			connection.Release()
		}
	}
}

// TestStatements_NameTheWorkspace checks the statements of this package. Each statement about records of workspaces
// must name the workspace, so that one node of a distributed database runs it.
func TestStatements_NameTheWorkspace(t *testing.T) {
	records := regexp.MustCompile(`resource\.(programmes|submissions|supporters|supporters_left|forms|imports|` +
		`idempotency_keys|list_locks)\s`)
	exempt := []string{
		"resource.submissions s where s.id = $1",              // a status token of an earlier release
		"from resource.submissions where status = 'accepted'", // a metric
		"index concurrently", "analyze resource.",             // for the owner of the database
		"from resource.supporters_left t where t.since",   // part of statements that name it
		"select s.created_at as at from resource.forms f", // for operators
	}
	files := orFail(os.ReadDir("."))(t)
	found := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		parsed := orFail(parser.ParseFile(positions, file.Name(), nil, 0))(t)
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !records.MatchString(text+" ") || !strings.Contains(text, " ") {
				return true
			}
			found++
			for _, part := range exempt {
				if strings.Contains(text, part) {
					return true
				}
			}
			if !strings.Contains(text, "tenant_id") {
				t.Errorf("%s names no workspace: %s", positions.Position(literal.Pos()), text)
			}
			if strings.Contains(text, "ctid") {
				t.Errorf("%s reads ctid: %s", positions.Position(literal.Pos()), text)
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("%d statements were found", found)
	}
}
