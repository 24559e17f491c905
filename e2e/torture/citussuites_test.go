package torture

import (
	"context"
	"flag"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// citusNodes are the nodes of the cluster of TestCitus_SuitesHold, the coordinator first.
var citusNodes []*localstore.Postgres

// TestCitus_SuitesHold runs the short forms of suites against distributed installations: races and endings, with all
// shards moved to one worker and back between them, and the histories of grants while a worker, among others, is killed
// and frozen.
func TestCitus_SuitesHold(t *testing.T) {
	onlyLong(t, "citus", "it needs the extension citus")
	useShortForm(t)
	moves := 0
	harness.Record(t, "races, endings, lost answers and histories; all shards moved away and back %v times",
		harness.Deferred[int](func() int { return moves }))
	cluster := harness.StartCitus(t, 2, false)
	citusNodes = cluster.Nodes
	options := pairOfAuthservers()
	options.Settings = busyMachine()
	running := harness.Private(t, options)
	t.Cleanup(func() { logCauses(t, running.LogDir()) })
	// Concurrent consents and sign-ups lock the whole tables that are copied to each node, and some get 503.
	workers = 1
	before := pair
	pair = func() (*stack.Stack, error) { return running, nil }
	t.Cleanup(func() { pair, workers = before, 4 })

	admin, err := pgx.Connect(t.Context(), running.DatabaseURL)
	must(t, err)
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	for _, one := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"refreshes of two", TestRefreshRace_OfTwoHasOneWinner},
		{"refreshes of sixteen", TestRefreshRace_OfSixteenHasOneWinner},
		{"codes", TestCodeRace_OfFourHasOneWinner},
		{"revocation", TestRevocation_EndsConcurrentRefresh},
		{"membership", TestMembershipRemoval_EndsConcurrentRefresh},
		{"client", TestClientDeletion_EndsConcurrentRefresh},
		{"lost answers", TestLostAnswers_CostNoGrant},
	} {
		t.Run(one.name, one.run)
		for _, sql := range moveAwayAndBack {
			_, err := admin.Exec(t.Context(), sql)
			must(t, err)
		}
		moves++
	}
	t.Run("histories", TestHistories_OfGrantsAreLinearizable)
}

// moveAwayAndBack moves the shards of the second worker to the first one, and then half of all back.
var moveAwayAndBack = []string{
	"select citus_drain_node(nodename, nodeport, 'force_logical') from pg_dist_node where groupid = 2",
	"select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node where groupid = 2",
	"select rebalance_table_shards(shard_transfer_mode := 'force_logical')",
}

// useShortForm makes a test run suites in their short form, whatever the flag says.
func useShortForm(t *testing.T) {
	t.Helper()
	long := flag.Lookup("long").Value
	before := long.String()
	must(t, long.Set("false"))
	t.Cleanup(func() { must(t, long.Set(before)) })
}
