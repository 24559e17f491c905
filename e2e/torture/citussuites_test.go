package torture

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// citusNodes are the nodes of the cluster of TestCitus_SuitesHold, the coordinator first.
var citusNodes []*localstore.Postgres

// TestCitus_SuitesHold runs the short forms of suites against distributed installations: races and endings while all
// shards move to one worker and back, and the histories of grants while a worker, among others, is killed and frozen.
func TestCitus_SuitesHold(t *testing.T) {
	if !harness.Long() {
		t.Skip("only in the long form: make torture PART=citus")
	}
	harness.UseShortForm(t)
	cluster := harness.StartCitus(t, 2)
	citusNodes = cluster.Nodes
	running := harness.Private(t, pairOfAuthservers())
	t.Cleanup(func() { logCauses(t, running.LogDir()) })
	before := pair
	pair = func() (*stack.Stack, error) { return running, nil }
	t.Cleanup(func() { pair = before })

	end := moveShards(t, running.DatabaseURL)
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
	}
	harness.Record(t, "all shards moved away and back %d times meanwhile", end())
	t.Run("histories", TestHistories_OfGrantsAreLinearizable)
}

// moveShards moves all shards to one worker and back until end is called, which returns how often it did.
func moveShards(t *testing.T, database string) (end func() (times int)) {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), database)
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	times := 0
	var moves sync.WaitGroup
	moves.Go(func() {
		for ctx.Err() == nil {
			for _, sql := range moveAwayAndBack {
				if _, err := admin.Exec(context.WithoutCancel(ctx), sql); err != nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
			}
			times++
			time.Sleep(time.Second)
		}
	})
	end = func() int {
		stop()
		moves.Wait()
		return times
	}
	t.Cleanup(func() { end(); _ = admin.Close(context.WithoutCancel(ctx)) })
	return end
}

// moveAwayAndBack moves the shards of the second worker to the first one, and then half of all back.
var moveAwayAndBack = []string{
	"select citus_drain_node(nodename, nodeport, 'force_logical') from pg_dist_node where groupid = 2",
	"select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node where groupid = 2",
	"select rebalance_table_shards(shard_transfer_mode := 'force_logical')",
}
