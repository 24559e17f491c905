package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A brokenBuild is a build without some protections, with the suites that must detect it.
type brokenBuild struct {
	faults  []harness.Fault
	detects []detection
	slow    bool // in the long form only
}

// A detection names a protection that is off, and the failure that the suite must report.
type detection struct{ name, suite, complaint string }

// detectionsAreRare scales the rounds of a suite that runs against a broken build, because some faults, such as races,
// only show by chance. A suite ends at the first failure.
const detectionsAreRare = 15

// The failures that several suites report.
const (
	outlived  = "an access token outlived the end"
	illegal   = "an illegal history of a grant"
	stolen    = "a thief without the key got a token"
	consumed  = "want status 200"
	unrevoked = "want status 401"
)

func brokenBuilds() []brokenBuild {
	return append(slowBrokenBuilds(),
		brokenBuild{faults: slices.Concat(rotateBlindly, redeemBlindly, fenceOff), detects: []detection{
			{"compare-and-set off at refresh", "TestRefreshRace_OfTwoHasOneWinner", "2 of 2 racers won"},
			{"compare-and-set off at exchange", "TestCodeRace_OfFourHasOneWinner", "of 4 racers won"},
		}},
		brokenBuild{slow: true, faults: slices.Concat(membershipCached, replayUnrevoked), detects: []detection{
			{"replay does not revoke", "TestRefreshRace_OfTwoHasOneWinner", unrevoked},
			{"membership cached", "TestMembershipRemoval_EndsConcurrentRefresh", outlived},
		}},
		brokenBuild{slow: true, faults: successorsRandom, detects: []detection{ // G11
			{"a lost answer is not given again", "TestLostAnswers_CostNoGrant", "a lost answer cost the grant"},
			{"one key, different tokens", "TestOneKeyRace_GivesOneToken", "a caller with the key was refused"},
			{"the model misses answers given again", "TestModel_MatchesSystem", "the model expects 200"},
			{"the histories miss answers given again", "TestHistories_OfGrantsAreLinearizable", illegal},
		}},
	)
}

// slowBrokenBuilds returns builds of the long form that one suite must detect.
func slowBrokenBuilds() []brokenBuild {
	build := func(name string, faults []harness.Fault, suite, complaint string) brokenBuild {
		return brokenBuild{faults: faults, detects: []detection{{name, suite, complaint}}, slow: true}
	}
	return []brokenBuild{
		build("Postgres update conditions off", postgresSilent, "TestHistories_OfGrantsAreLinearizable", illegal),
		build("replay does not revoke, on a Redis Cluster", replayUnrevoked,
			"TestRedisCluster_FailoverAndReshardingLoseNoGrant", unrevoked),
		build("repair off", repairOff, "TestRedis_LostDataIsRepaired", consumed),
		build("repair off, after failover to a lagging replica", repairOff, "TestRedisSentinel_FailoverLosesNoGrant",
			consumed),
		build("Redis refusal blamed on the token", redisRefusalBlamesToken, "TestRedis_RefusalLosesNothing",
			"want status 503"),
		build("undo off", undoOff, "TestPostgres_PoolExhaustionLosesNoToken", consumed),
		build("undo of uncertain decisions off", undoUncertainOff, "TestStalls_OfRedisLoseNoGrant", "was lost"),
		build("update tried only once", triedOnce, "TestPostgres_UnknownOutcomeIsResolved", consumed),
		build("revocation acknowledged before commit", acknowledgedBeforeCommit, "TestRevocation_EndsConcurrentRefresh",
			outlived),
		build("grants outlive clients", grantsOutliveClients, "TestClientDeletion_EndsConcurrentRefresh", outlived),
		build("no time limits for requests", timeoutsOff, "TestFlood_LeavesOtherClientsWorking",
			"slow connections were held"),
		build("MAC off", macOff, "TestFlood_LeavesOtherClientsWorking", "a guess got status 200"),
		build("Idempotency-Key stored in another transaction", keyInOtherTransaction,
			"TestKill_AtRandomLosesNothingAcknowledged", "programmes of one request"),
		build("no draining", drainOff, "TestRestarts_FailNoRequest", "a request failed during a restart"),
		build("membership cached, detected by the model", membershipCached, "TestModel_MatchesSystem",
			"the model expects"),
		build("tenant comparison off", workspaceNotCompared, "TestModel_MatchesSystem",
			"the model expects 403 FORBIDDEN"),
		build("a token is logged", tokenLogged, "TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in the services' logs"),
		build("a token is stored in the clear", tokenStored, "TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in Postgres"),
		build("a thief without a key gets the answer again", anySenderRepeats, "TestLostAnswers_CostNoGrant", stolen),
		build("a thief with another key gets the answer again", keyIgnored, "TestLostAnswers_CostNoGrant", stolen),
	}
}

// TestFaults_MatchSource checks that every fault matches the source, including the faults of the slow builds.
func TestFaults_MatchSource(t *testing.T) {
	t.Parallel()
	for _, b := range brokenBuilds() {
		t.Run(b.detects[0].name, func(t *testing.T) { harness.Faulty(t, b.faults...) })
	}
	t.Run("named steps", func(t *testing.T) { harness.Faulty(t, deaths()...) })
}

func TestBrokenBuilds_AreDetected(t *testing.T) {
	parallelIfShort(t)
	harness.Record(t, "%d builds without protections, each detected by its suites", len(brokenBuilds()))
	for _, b := range brokenBuilds() {
		if b.slow && !harness.Long() {
			continue
		}
		t.Run(b.detects[0].name, func(t *testing.T) {
			b.isDetected(t, harness.Broken(t, b.faults...))
		})
	}
}

// isDetected runs the suites of a build in one process, which must report the failure of each.
func (b brokenBuild) isDetected(t *testing.T, binaries string) {
	t.Helper()
	var suites []string
	for _, d := range b.detects {
		suites = append(suites, d.suite)
	}
	output, passed := harness.RunAgainst(t, binaries, "^("+strings.Join(suites, "|")+")$", detectionsAreRare,
		harness.EvidenceVariable+"=")
	for _, d := range b.detects {
		report := output
		if len(b.detects) > 1 { // what this suite reported: its lines, up to the next suite's
			_, report, _ = strings.Cut("\n"+output, "\n--- FAIL: "+d.suite+" ")
			report, _, _ = strings.Cut(report, "\n--- FAIL: ")
		}
		switch {
		case passed || report == "":
			t.Errorf("%s passed against a build with: %s", d.suite, d.name)
		case !strings.Contains(report, d.complaint):
			t.Errorf("%s failed, but not because %q:\n%s", d.suite, d.complaint, harness.Redact(output))
		}
	}
}
