package postgres_test

import (
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// citus imitates the tables of Citus. The grants of each workspace have the shard that its id ends with.
func (l *storeTest) citus() {
	l.Helper()
	for _, sql := range []string{
		`create table public.pg_dist_node (groupid int, nodename text, nodeport int, noderole text, isactive boolean)`,
		`create table public.pg_dist_placement (groupid int, shardid bigint)`,
		`create function public.get_shard_id_for_distribution_column(regclass, anyelement) returns bigint
			language sql as $$ select right($2::text, 2)::bigint $$`,
		`grant select on public.pg_dist_node, public.pg_dist_placement to public`,
	} {
		l.fixture.Exec(sql)
	}
}

// inShard returns the id of a workspace whose grants are in a shard.
func inShard(shard string) uuid.UUID {
	return uuid.MustParse(uuid.NewString()[:34] + shard)
}

// atHosts replaces the store with one whose refreshes use the database at these hosts.
func (l *storeTest) atHosts(hosts string) {
	l.Helper()
	address, err := url.Parse(l.fixture.Database.Authserver)
	must(l, err)
	address.Host = hosts
	l.reopen(credential.Secret(address.String()))
}

func (l *storeTest) port() string {
	l.Helper()
	address, err := url.Parse(l.fixture.Database.Authserver)
	must(l, err)
	return address.Port()
}

// Refreshes go to the primary of the node that has the grants of their workspace if the URL names it, and otherwise to
// any.
func TestRefreshes_GoToNodeOfTheirWorkspace(t *testing.T) {
	testkit.SkipIfDistributed(t, "it has the tables that this test imitates")
	l := ownStoreTest(t)
	l.atHosts("127.0.0.1:" + l.port() + ",localhost:1,127.0.0.2,[::1]:2,[::1]")
	if node := l.NodeOf(t.Context(), inShard("11")); node != "" {
		t.Errorf("without Citus: %q", node)
	}
	l.citus()
	l.fixture.Exec(`insert into pg_dist_node values (1, '127.0.0.1', 3, 'secondary', true),
		(1, 'localhost', 1, 'primary', false), (1, '127.0.0.1', $1::text::int, 'primary', true),
		(2, 'localhost', 1, 'primary', true), (3, 'unnamed', 1, 'primary', true),
		(4, '127.0.0.2', 5432, 'primary', true), (5, '::1', 2, 'primary', true), (6, '::1', 5432, 'primary', true),
		(7, 'localhost', 1, 'secondary', true)`, l.port())
	l.fixture.Exec(`insert into pg_dist_placement select n, 10 + n from generate_series(1, 7) n`)
	for shard, want := range map[string]string{
		"11": "127.0.0.1:" + l.port(),
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
	l.atHosts("127.0.0.1:" + l.port() + ",127.0.0.1:1")
	l.pending()
	wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	l.citus()
	l.fixture.Exec(`create or replace function public.get_shard_id_for_distribution_column(regclass, anyelement)
		returns bigint language sql as $$ select 11::bigint $$`)
	l.fixture.Exec(`insert into pg_dist_node values (1, '127.0.0.1', $1::text::int, 'primary', true),
		(2, '127.0.0.1', 1, 'primary', true)`, l.port())
	l.fixture.Exec(`insert into pg_dist_placement values (2, 11)`)
	if node := l.NodeOf(t.Context(), l.grant.WorkspaceID); node != "127.0.0.1:1" {
		t.Errorf("%q", node)
	}
	wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
	l.fixture.Exec(`update pg_dist_placement set groupid = 1`)
	if node := l.NodeOf(t.Context(), l.grant.WorkspaceID); node != "127.0.0.1:"+l.port() {
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
