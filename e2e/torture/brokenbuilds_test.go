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

func brokenBuilds() []brokenBuild {
	return slices.Concat([]brokenBuild{
		{
			faults: slices.Concat(rotateBlindly, redeemBlindly, []harness.Fault{fenceOff}),
			detects: []detection{
				{"compare-and-set off at refresh", "TestRefreshRace_OfTwoHasOneWinner", "2 of 2 racers won"},
				{"compare-and-set off at exchange", "TestCodeRace_OfFourHasOneWinner", "of 4 racers won"},
			},
		},
		{
			slow:   true,
			faults: append(slices.Clone(membershipCached), replayUnrevoked),
			detects: []detection{
				{"replay does not revoke", "TestRefreshRace_OfTwoHasOneWinner", "want status 401"},
				{
					"membership cached", "TestMembershipRemoval_EndsConcurrentRefresh",
					"an access token outlived the end",
				},
			},
		},
		{
			slow:   true,
			faults: postgresSilent,
			detects: []detection{{
				"Postgres update conditions off", "TestHistories_OfGrantsAreLinearizable",
				"an illegal history of a grant",
			}},
		},
	}, slowBrokenBuilds(), lostResponseBuilds())
}

// slowBuild returns a build that one suite must detect, in the long form.
func slowBuild(name string, faults []harness.Fault, suite, complaint string) brokenBuild {
	return brokenBuild{faults: faults, detects: []detection{{name, suite, complaint}}, slow: true}
}

func slowBrokenBuilds() []brokenBuild {
	return []brokenBuild{
		slowBuild("replay does not revoke, on a Redis Cluster", []harness.Fault{replayUnrevoked},
			"TestRedisCluster_FailoverAndReshardingLoseNoGrant", "want status 401"),
		slowBuild("repair off", []harness.Fault{repairOff}, "TestRedis_LostDataIsRepaired", "want status 200"),
		slowBuild("repair off, after failover to a lagging replica", []harness.Fault{repairOff},
			"TestRedisSentinel_FailoverLosesNoGrant", "want status 200"),
		slowBuild("Redis refusal blamed on the token", []harness.Fault{redisRefusalBlamesToken},
			"TestRedis_RefusalLosesNothing", "want status 503"),
		slowBuild("scripts assumed to be loaded", scriptsAssumedLoaded, "TestRedis_ScriptFlushIsUnnoticed",
			"want status 200"),
		slowBuild("undo off", undoOff, "TestPostgres_PoolExhaustionLosesNoToken", "want status 200"),
		slowBuild("undo of uncertain decisions off", undoUncertainOff, "TestStalls_OfRedisLoseNoGrant", "was lost"),
		slowBuild("deadlines off", []harness.Fault{deadlinesOff}, "TestStalls_OfOneCallLoseNoGrant", "want status 200"),
		slowBuild("update tried only once", []harness.Fault{triedOnce}, "TestPostgres_UnknownOutcomeIsResolved",
			"want status 200"),
		slowBuild("revocation acknowledged before commit", []harness.Fault{acknowledgedBeforeCommit},
			"TestRevocation_EndsConcurrentRefresh", "an access token outlived the end"),
		slowBuild("grants outlive clients", []harness.Fault{grantsOutliveClients},
			"TestClientDeletion_EndsConcurrentRefresh", "an access token outlived the end"),
		slowBuild("no time limits for requests", []harness.Fault{timeoutsOff}, "TestFlood_LeavesOtherClientsWorking",
			"slow connections were held"),
		slowBuild("MAC off", []harness.Fault{macOff}, "TestFlood_LeavesOtherClientsWorking", "a guess got status 200"),
		slowBuild("Idempotency-Key stored in another transaction", keyInOtherTransaction,
			"TestKill_AtRandomLosesNothingAcknowledged", "programmes of one request"),
		slowBuild("no draining", drainOff, "TestRestarts_FailNoRequest", "a request failed during a restart"),
		slowBuild("membership cached, detected by the model", membershipCached, "TestModel_MatchesSystem",
			"the model expects"),
		slowBuild("tenant comparison off", []harness.Fault{workspaceNotCompared}, "TestModel_MatchesSystem",
			"the model expects 403 FORBIDDEN"),
		slowBuild("a token is logged", []harness.Fault{tokenLogged}, "TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in the services' logs"),
		slowBuild("a token is stored in the clear", []harness.Fault{tokenStored}, "TestRefreshRace_OfTwoHasOneWinner",
			"secrets of this run are in Postgres"),
	}
}

// TestFaults_MatchSource checks that every fault matches the source, including the faults of the slow builds.
func TestFaults_MatchSource(t *testing.T) {
	t.Parallel()
	for _, b := range brokenBuilds() {
		t.Run(b.detects[0].name, func(t *testing.T) { harness.Faulty(t, b.faults...) })
	}
	t.Run("named steps", func(t *testing.T) { harness.Faulty(t, append(deaths(), deathsAtWork()...)...) })
}

func TestBrokenBuilds_AreDetected(t *testing.T) {
	parallelIfShort(t)
	harness.Record(t, "%d builds without protections, each detected by its suites", len(brokenBuilds()))
	for _, b := range brokenBuilds() {
		if b.slow && !harness.Long() {
			continue
		}
		t.Run(b.detects[0].name, func(t *testing.T) {
			broken := harness.Broken(t, b.faults...)
			for _, d := range b.detects {
				b.isDetected(t, broken, d)
			}
		})
	}
}

func (b brokenBuild) isDetected(t *testing.T, broken string, d detection) {
	t.Helper()
	output, passed := harness.RunAgainst(t, broken, "^"+d.suite+"$", detectionsAreRare, harness.EvidenceVariable+"=")
	if passed {
		t.Errorf("%s passed against a build with: %s", d.suite, d.name)
		return
	}
	if !strings.Contains(output, d.complaint) {
		t.Errorf("%s failed, but not because %q:\n%s", d.suite, d.complaint, harness.Redact(output))
	}
}

// lostResponseBuilds are builds in which a repeated request does not get the same token, or a request of another sender
// gets it (G11).
func lostResponseBuilds() []brokenBuild {
	const refusals = "TestRepeat_IsRefusedLikeFirstRequest"
	return []brokenBuild{
		{
			slow:   true,
			faults: []harness.Fault{successorsRandom},
			detects: []detection{
				{"a lost answer is not given again", "TestLostAnswers_CostNoGrant", "a lost answer cost the grant"},
				{"one key, different tokens", "TestOneKeyRace_GivesOneToken", "a caller with the key was refused"},
				{"the model misses answers given again", "TestModel_MatchesSystem", "the model expects 200"},
				{
					"the histories miss answers given again", "TestHistories_OfGrantsAreLinearizable",
					"an illegal history of a grant",
				},
			},
		},
		slowBuild("a thief without a key gets the answer again", anySenderRepeats, "TestLostAnswers_CostNoGrant",
			"a thief without the key got a token"),
		slowBuild("a thief with another key gets the answer again", []harness.Fault{keyIgnored},
			"TestLostAnswers_CostNoGrant", "a thief without the key got a token"),
		slowBuild("answers are given again forever", repeatedForever, refusals,
			"60 s over: a repeated request got a token"),
		slowBuild("standing is not checked again", []harness.Fault{repeatedBeforeStanding}, refusals,
			"a repeated request got a token"),
		slowBuild("an answer is given again although Redis has lost it", []harness.Fault{repeatedWithoutRedis},
			refusals, "a repeated request got a token"),
	}
}
