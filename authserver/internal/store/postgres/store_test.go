package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// F26: the first request after a restart of PostgreSQL succeeds.
func TestOpen_ClosedConnectionIsNotReused(t *testing.T) {
	l := ownStoreTest(t)
	for range 2 {
		must(t, errOf(l.SigningKeys(t.Context())))
		l.fixture.Database.EndSessions(t)
	}
}

// While the primary of a URL with several hosts is down, a replica may lack the latest revocations. The read-only
// server is in place of the replica.
func TestStore_DoesNotReadFromReplica(t *testing.T) {
	l := newStoreTest(t)
	for readOnly, want := range map[string]bool{"off": true, "on": false} {
		address := l.address()
		address.Host = "127.0.0.1:1," + address.Host
		query := address.Query()
		query.Set("default_transaction_read_only", readOnly)
		address.RawQuery = query.Encode()
		database := postgres.Only(credential.Secret(address.String()))
		store, err := postgres.Open(t.Context(), database, testkit.SilentStoreWait)
		must(t, err)
		t.Cleanup(store.Close)
		_, err = store.Modules(t.Context(), l.grant.UserID)
		if got := err == nil; got != want {
			t.Errorf("read only %s: %v", readOnly, err)
		}
	}
}

func TestReady_RequiresEveryMigration(t *testing.T) {
	l := ownStoreTest(t)
	ready := func() error { return l.open(testkit.StoreWait).Ready(t.Context()) }
	wantErr(t, "all migrations applied", nil, ready())
	l.fixture.Exec("insert into goose_authserver (version_id, is_applied) values (99999, true)") // by a newer program
	wantErr(t, "newer schema", nil, ready())
	l.fixture.Exec("delete from goose_authserver where version_id = 331")
	if err := ready(); err == nil || !strings.Contains(err.Error(), "00331_proven_addresses_filled.sql") {
		t.Errorf("missing migration: %v", err)
	}
}

func TestReady_DoesNotWaitForCallersConnections(t *testing.T) {
	l := ownStoreTest(t)
	release, err := l.TakeAll(t.Context())
	must(t, err)
	defer release()
	for _, when := range []string{"first, with the migrations", "later"} {
		wantErr(t, when, nil, l.Ready(t.Context()))
	}
	l.wantCount(16, "connections of a process (SCALING.md)", `select count(*) from pg_stat_activity
		where application_name = 'almoner-authserver' and datname = current_database()`)
}

// Without ALMONER_STORE_WAIT, a request gets its 503 before the server closes its connection. With it, requests and
// steps of grants wait longer, for a connection and for a lock.
func TestSteps_WaitAsConfigured(t *testing.T) {
	l := newStoreTest(t)
	for _, c := range []struct {
		wait, transaction, operation time.Duration
		lock                         string
	}{
		{0, 5 * time.Second, time.Second, "400ms"},
		{testkit.SilentStoreWait, 5 * time.Second, 3 * time.Second, "1200ms"},
		{testkit.StoreWait, 20 * time.Second, 20 * time.Second, "8s"},
	} {
		transaction, operation, lock, err := l.open(c.wait).Limits(t.Context())
		if transaction != c.transaction || operation != c.operation || lock != c.lock || err != nil {
			t.Errorf("wait %s: got %s, %s, %s, %v, want %+v", c.wait, transaction, operation, lock, err, c)
		}
		if transaction >= postgres.CommandTime {
			t.Errorf("wait %s: a request waits %s, as long as a command", c.wait, transaction)
		}
	}
}

func TestSteps_WaitLongerWithSetting(t *testing.T) {
	l := newStoreTest(t).pending()
	release, err := l.TakeAll(t.Context())
	must(t, err)
	time.AfterFunc(1500*time.Millisecond, release) // later than a second, the limit without the setting
	wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 2))

	unlock, unlocked := l.hold(l.grant.ID), make(chan struct{})
	time.AfterFunc(800*time.Millisecond, func() { // later than 400 ms
		defer close(unlocked)
		unlock()
	})
	wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(3)))
	<-unlocked
}

func TestTransactions_RequestsEndBeforeCommands(t *testing.T) {
	l := newStoreTest(t)
	release, err := l.TakeAll(t.Context())
	must(t, err)
	event := byOperator(audit.UserRenamed, l.grant.UserID)
	operations := map[string]func() error{
		"changes": func() error { return l.SetName(t.Context(), l.grant.UserID, "Ada Okafor", event) },
		"reads":   func() error { return errOf(l.ConnectorPolicy(t.Context(), l.grant.WorkspaceID)) },
	}
	const limit = 20 * time.Millisecond
	l.SetLimit(limit)
	for what, request := range operations {
		began := time.Now()
		wantErr(t, "a request that "+what, store.ErrUnavailable, request())
		if took := time.Since(began); took >= postgres.CommandTime {
			t.Errorf("a request that %s waited as long as a command: %s", what, took)
		}
	}
	l.ServeCommands()
	time.AfterFunc(5*limit, release)
	wantErr(t, "commands", nil, errors.Join(at(operations["changes"], operations["reads"])...))
}

// refreshRole creates a login for refreshes whose commits do not wait for the disk, and returns its URL.
func (l *storeTest) refreshRole(name string) credential.Secret {
	l.Helper()
	ctx := l.Context()
	superuser := connect(l, l.fixture.Database.Superuser)
	for _, sql := range []string{
		"drop role if exists " + name,
		"create role " + name + " login password 'for tests' in role almoner_authserver",
		"alter role " + name + " set synchronous_commit = off",
	} {
		must(l, errOf(superuser.Exec(ctx, sql)))
	}
	address := l.address()
	address.User = url.UserPassword(name, "for tests")
	return credential.Secret(address.String())
}

// reopen replaces the store with one whose refreshes use another URL.
func (l *storeTest) reopen(refreshes credential.Secret) {
	l.Helper()
	l.Close()
	var err error
	l.Store, err = postgres.Open(l.Context(), postgres.Sources{
		Database:  credential.Fixed(credential.Secret(l.fixture.Database.Authserver)),
		Refreshes: credential.Fixed(refreshes),
	}, testkit.StoreWait)
	must(l, err)
	l.Cleanup(l.Store.Close)
}

// notesCommits notes each commit of a change of a grant. The settings are read at the commit itself: a deferred trigger
// runs after the statement, just before the transaction ends.
func (l *storeTest) notesCommits() {
	l.Helper()
	l.fixture.Exec(`
		create table account.commits (generation integer, state text, by name, waits text);
		create function account.note_commit() returns trigger language plpgsql security definer as $$
		begin
			insert into account.commits
				values (new.generation, new.state, session_user, current_setting('synchronous_commit'));
			return null;
		end $$;
		create constraint trigger note_commit after insert or update on account.grants deferrable initially deferred
			for each row execute function account.note_commit()`)
}

// Only refreshes use the role for refreshes, if there is one. The use of a code must be durable (G1), so it uses the
// other role. Only the commits of refreshes do not wait for the disk.
func TestRefreshPool_TakesStepsOfRefreshesOnly(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	for _, own := range []bool{true, false} {
		l := storeTestIn(t, fixture.New(t))
		if own {
			l.reopen(l.refreshRole("almoner_test_refreshes"))
		}
		l.notesCommits()
		if err := l.PingRefreshes(t.Context()); err != nil || l.HasRefreshPool() != own {
			t.Fatalf("%v, own pool: %t, want %t", err, l.HasRefreshPool(), own)
		}
		wants(l, grant.Pending)(l.approve(t.Context(), l.grant))
		wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
		wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
		wants(l, grant.Updated)(l.directly(l.step("direct", 3, hash(3))))
		// Of another's grants.
		l.fixture.Exec(`insert into account.endings (id, tenant_id, user_id, reason, actor)
			values (gen_random_uuid(), $1, gen_random_uuid(), 'user', 'user')`, l.fixture.WorkspaceID)
		wants(l, grant.Updated)(l.directly(l.step("alone", 4, hash(4))))
		if snapshot, err := l.Snapshot(t.Context(), l.grant.ClientID, l.grant.Key()); err != nil ||
			snapshot.Grant.Generation != 4 {
			t.Errorf("%+v %v", snapshot.Grant, err)
		}
		must(t, l.Revoke(t.Context(), l.grant.Key(), grant.ByUser, "user", nil))
		got := l.texts(`select state || ' ' || generation || ' ' || (by = 'almoner_test_refreshes') || ' ' || waits
			from account.commits`)
		want := []string{
			"pending 0 false on",
			"active 1 false on",
			fmt.Sprintf("active 2 %t off", own),
			fmt.Sprintf("active 3 %t off", own),
			fmt.Sprintf("active 4 %t off", own),
			"revoked 4 false on",
		}
		if !slices.Equal(got, want) {
			t.Errorf("own pool %t: got %q, want %q", own, got, want)
		}
	}
}

// Another database does not have the grants, so refreshes would look like the use of stolen tokens. They fail instead.
func TestRefreshPool_RefusesAnotherDatabase(t *testing.T) {
	l := ownStoreTest(t)
	l.publish("one")
	wants(l, grant.Pending)(l.approve(t.Context(), l.grant))
	wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	other := fixture.New(t)
	l.reopen(credential.Secret(other.Database.Authserver))
	if err := l.PingRefreshes(t.Context()); err == nil ||
		!strings.Contains(err.Error(), postgres.ErrOtherDatabase.Error()) {
		t.Errorf("%v, want %v", err, postgres.ErrOtherDatabase)
	}
	if result, err := l.advance(t.Context(), l.grant.ID, 2, hash(2)); !errors.Is(err, postgres.ErrOtherDatabase) {
		t.Errorf("%v %v, want %v", result, err, postgres.ErrOtherDatabase)
	}
	if _, err := l.Snapshot(t.Context(), l.grant.ClientID, l.grant.Key()); !errors.Is(err, postgres.ErrOtherDatabase) {
		t.Errorf("%v, want %v", err, postgres.ErrOtherDatabase)
	}
	l.publish("two")
	other.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('two', '{}', '', 'next')`)
	wantErr(t, "a database with the same key", nil, l.PingRefreshes(t.Context()))
}

// citus imitates the tables of Citus. The grants of each workspace have the shard that its id ends with.
func (l *storeTest) citus() {
	l.Helper()
	l.fixture.Exec(`
		create table public.pg_dist_node (groupid int, nodename text, nodeport int, noderole text, isactive boolean);
		create table public.pg_dist_placement (groupid int, shardid bigint);
		create function public.get_shard_id_for_distribution_column(regclass, anyelement) returns bigint
			language sql as $$ select right($2::text, 2)::bigint $$;
		grant select on public.pg_dist_node, public.pg_dist_placement to public`)
}

// inShard returns the id of a workspace whose grants are in a shard.
func inShard(shard string) uuid.UUID {
	return uuid.MustParse(uuid.NewString()[:34] + shard)
}

// address returns the URL of the database for the service's role.
func (l *storeTest) address() *url.URL {
	l.Helper()
	address, err := url.Parse(l.fixture.Database.Authserver)
	must(l, err)
	return address
}

// atHosts replaces the store with one whose refreshes use the database at these hosts.
func (l *storeTest) atHosts(hosts string) {
	l.Helper()
	address := l.address()
	address.Host = hosts
	l.reopen(credential.Secret(address.String()))
}

// Refreshes go to the primary of the node that has the grants of their workspace if the URL names it, and otherwise to
// any.
func TestRefreshes_GoToNodeOfTheirWorkspace(t *testing.T) {
	testkit.SkipIfDistributed(t, "it has the tables that this test imitates")
	l := ownStoreTest(t)
	l.atHosts("127.0.0.1:" + l.address().Port() + ",localhost:1,127.0.0.2,[::1]:2,[::1]")
	if node := l.NodeOf(t.Context(), inShard("11")); node != "" {
		t.Errorf("without Citus: %q", node)
	}
	l.citus()
	l.fixture.Exec(`insert into pg_dist_node values (1, '127.0.0.1', 3, 'secondary', true),
		(1, 'localhost', 1, 'primary', false), (1, '127.0.0.1', $1::text::int, 'primary', true),
		(2, 'localhost', 1, 'primary', true), (3, 'unnamed', 1, 'primary', true),
		(4, '127.0.0.2', 5432, 'primary', true), (5, '::1', 2, 'primary', true), (6, '::1', 5432, 'primary', true),
		(7, 'localhost', 1, 'secondary', true)`, l.address().Port())
	l.fixture.Exec(`insert into pg_dist_placement select n, 10 + n from generate_series(1, 7) n`)
	for shard, want := range map[string]string{
		"11": "127.0.0.1:" + l.address().Port(),
		"12": "localhost:1",
		"13": "",
		"14": "127.0.0.2:5432",
		"15": "[::1]:2",
		"16": "[::1]:5432",
		"17": "", // has no primary
		"18": "",
	} {
		if node := l.NodeOf(t.Context(), inShard(shard)); node != want {
			t.Errorf("%s: %q, want %q", shard, node, want)
		}
	}
}

// A node that cannot be reached is forgotten, and another takes the step: nothing was sent. One that is not found is
// not looked up for each step.
func TestRefreshes_OtherNodeTakesStepOfLostOne(t *testing.T) {
	testkit.SkipIfDistributed(t, "it has the tables that this test imitates")
	l := ownStoreTest(t)
	l.atHosts("127.0.0.1:" + l.address().Port() + ",127.0.0.1:1")
	l.pending()
	wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	l.citus()
	l.fixture.Exec(`create or replace function public.get_shard_id_for_distribution_column(regclass, anyelement)
		returns bigint language sql as $$ select 11::bigint $$`)
	l.fixture.Exec(`insert into pg_dist_node values (1, '127.0.0.1', $1::text::int, 'primary', true),
		(2, '127.0.0.1', 1, 'primary', true)`, l.address().Port())
	l.fixture.Exec(`insert into pg_dist_placement values (2, 11)`)
	if node := l.NodeOf(t.Context(), l.grant.WorkspaceID); node != "127.0.0.1:1" {
		t.Errorf("%q", node)
	}
	wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
	l.fixture.Exec(`update pg_dist_placement set groupid = 1`)
	if node := l.NodeOf(t.Context(), l.grant.WorkspaceID); node != "127.0.0.1:"+l.address().Port() {
		t.Errorf("after the move: %q", node)
	}
	other := inShard("12")
	l.fixture.Exec(`delete from pg_dist_placement`)
	before := l.NodeOf(t.Context(), other)
	l.fixture.Exec(`insert into pg_dist_placement values (1, 11)`)
	if node := l.NodeOf(t.Context(), other); node != before || node != "" {
		t.Errorf("looked up again: %q", node)
	}
}
