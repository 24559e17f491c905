package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A bite is a build without one protection, the suite that must detect it, and the failure that the suite must report.
type bite struct {
	name      string
	faults    []harness.Fault
	suite     string
	complaint string
	slow      bool // in the long form only
}

func bites() []bite {
	return []bite{
		{
			"compare-and-set off at refresh",
			append(slices.Clone(rotateBlindly), fenceOff),
			"TestRefreshRace_OfTwoHasOneWinner",
			"2 of 2 racers won",
			false,
		},
		{
			"compare-and-set off at exchange",
			[]harness.Fault{redeemBlindly, fenceOff},
			"TestCodeRace_OfFourHasOneWinner",
			"of 4 racers won",
			false,
		},
		{
			"replay does not revoke",
			[]harness.Fault{replayUnrevoked},
			"TestRefreshRace_OfTwoHasOneWinner",
			"want status 401",
			false,
		},
		{
			"replay does not revoke, on a Redis Cluster",
			[]harness.Fault{replayUnrevoked},
			"TestRedisCluster_FailoverAndReshardingLoseNoGrant",
			"want status 401",
			true,
		},
		{
			"membership cached",
			membershipCached,
			"TestMembershipRemoval_EndsConcurrentRefresh",
			"an access token outlived the end",
			false,
		},
		{
			"Postgres update conditions off",
			postgresSilent,
			"TestHistories_OfGrantsAreLinearizable",
			"an illegal history of a grant",
			false,
		},
		{
			"repair off",
			[]harness.Fault{repairOff},
			"TestRedis_LostDataIsRepaired",
			"want status 200",
			true,
		},
		{
			"repair off, after failover to a lagging replica",
			[]harness.Fault{repairOff},
			"TestRedisSentinel_FailoverLosesNoGrant",
			"want status 200",
			true,
		},
		{
			"Redis refusal blamed on the token",
			[]harness.Fault{redisRefusalBlamesToken},
			"TestRedis_RefusalLosesNothing",
			"want status 503",
			true,
		},
		{
			"scripts assumed to be loaded",
			scriptsAssumedLoaded,
			"TestRedis_ScriptFlushIsUnnoticed",
			"want status 200",
			true,
		},
		{
			"undo off",
			[]harness.Fault{undoOff},
			"TestPostgres_PoolExhaustionLosesNoToken",
			"want status 200",
			true,
		},
		{
			"undo of uncertain decisions off",
			[]harness.Fault{undoUncertainOff},
			"TestStalls_OfRedisLoseNoGrant",
			"was lost",
			true,
		},
		{
			"deadlines off",
			[]harness.Fault{deadlinesOff},
			"TestStalls_OfRedisLoseNoGrant",
			"was lost",
			true,
		},
		{
			"update tried only once",
			[]harness.Fault{triedOnce},
			"TestPostgres_UnknownOutcomeIsResolved",
			"want status 200",
			true,
		},
		{
			"revocation acknowledged before commit",
			[]harness.Fault{acknowledgedBeforeCommit},
			"TestRevocation_EndsConcurrentRefresh",
			"an access token outlived the end",
			true,
		},
		{
			"grants outlive clients",
			[]harness.Fault{grantsOutliveClients},
			"TestClientDeletion_EndsConcurrentRefresh",
			"an access token outlived the end",
			true,
		},
		{
			"no time limits for requests",
			[]harness.Fault{timeoutsOff},
			"TestFlood_LeavesOtherClientsWorking",
			"slow connections were held",
			true,
		},
		{
			"MAC off",
			[]harness.Fault{macOff},
			"TestFlood_LeavesOtherClientsWorking",
			"a guess got status 200",
			true,
		},
		{
			"Idempotency-Key stored in another transaction",
			keyInOtherTransaction,
			"TestKill_AtRandomLosesNothingAcknowledged",
			"programmes of one request",
			true,
		},
		{
			"no draining",
			drainOff,
			"TestRestarts_FailNoRequest",
			"a request failed during a restart",
			true,
		},
		{
			"membership cached, detected by the model",
			membershipCached,
			"TestModel_MatchesSystem",
			"the model expects",
			true,
		},
		{
			"tenant comparison off",
			[]harness.Fault{workspaceNotCompared},
			"TestModel_MatchesSystem",
			"the model expects 403 FORBIDDEN",
			true,
		},
		{
			"a token is logged",
			[]harness.Fault{tokenLogged},
			"TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in the services' logs",
			true,
		},
		{
			"a token is stored in the clear",
			[]harness.Fault{tokenStored},
			"TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in Postgres",
			true,
		},
	}
}

// tries is how often a suite runs against a broken build, since some faults show only by chance, as in a race.
const tries = 3

// TestFaults_MatchSource checks that every fault matches the source, including the faults of the slow builds.
func TestFaults_MatchSource(t *testing.T) {
	t.Parallel()
	check := func(name string, faults []harness.Fault) {
		t.Run(name, func(t *testing.T) { harness.Faulty(t, faults...) })
	}
	for _, b := range bites() {
		check(b.name, b.faults)
	}
	check("named steps", append(deaths(), deathsAtWork()...))
}

func TestBrokenBuilds_AreDetected(t *testing.T) {
	harness.Note(t, "%d builds without a protection, each detected by its suite", len(bites()))
	for _, b := range bites() {
		if b.slow && !harness.Long() {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			broken := harness.Broken(t, b.faults...)
			var output string
			passed := true
			for try := 0; passed && try < tries; try++ {
				output, passed = harness.RunAgainst(t, broken, "^"+b.suite+"$", harness.EvidenceVariable+"=")
			}
			if passed {
				t.Fatalf("%s passed against a build with: %s", b.suite, b.name)
			}
			if !strings.Contains(output, b.complaint) {
				t.Errorf("%s failed, but not because %q:\n%s", b.suite, b.complaint, harness.Redact(output))
			}
		})
	}
}
