package postgres_test

import (
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Refreshes go to the node that has the grants of their workspace if the URL names it, and otherwise to any. The test
// imitates the tables of Citus.
func TestRefreshes_GoToNodeOfTheirWorkspace(t *testing.T) {
	l := ownStoreTest(t)
	service, err := url.Parse(l.fixture.Database.Authserver)
	must(t, err)
	first, second := "127.0.0.1:"+service.Port(), "localhost:"+service.Port()
	service.Host = first + "," + second
	store, err := postgres.Open(t.Context(), postgres.Sources{
		Database:  credential.Fixed(credential.Secret(l.fixture.Database.Authserver)),
		Refreshes: credential.Fixed(credential.Secret(service.String())),
	}, testkit.StoreWait)
	must(t, err)
	t.Cleanup(store.Close)
	at, other, unnamed := uuid.New(), uuid.New(), uuid.New()
	if node := store.NodeOf(t.Context(), at); node != "" {
		t.Errorf("without Citus: %q", node)
	}
	l.fixture.Exec(`create table public.pg_dist_node (groupid int, nodename text, nodeport int)`)
	l.fixture.Exec(`create table public.pg_dist_placement (groupid int, shardid bigint)`)
	l.fixture.Exec(`insert into public.pg_dist_node values (1, '127.0.0.1', $1::text::int),
		(2, 'localhost', $1::text::int), (3, 'unnamed', 1)`, service.Port())
	l.fixture.Exec(`insert into public.pg_dist_placement values (1, 11), (2, 12), (3, 13)`)
	l.fixture.Exec(`create function public.get_shard_id_for_distribution_column(regclass, anyelement) returns bigint
		language sql as $$ select case $2::text when '` + at.String() + `' then 11 when '` + other.String() + `' then 12
		else 13 end $$`)
	l.fixture.Exec(`grant select on public.pg_dist_node, public.pg_dist_placement to public`)
	for workspace, want := range map[uuid.UUID]string{at: first, other: second, unnamed: ""} {
		if node := store.NodeOf(t.Context(), workspace); node != want {
			t.Errorf("%q, want %q", node, want)
		}
	}
}
