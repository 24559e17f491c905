package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A bite is a build without a protection, the suite that must notice, and what it must complain of.
type bite struct {
	name      string
	faults    []harness.Fault
	suite     string
	complaint string
	slow      bool // in the long form alone
}

func bites() []bite {
	return []bite{
		{
			"compare-and-set off at refresh",
			append(slices.Clone(rotateBlindly), fenceOff),
			"TestRefreshRacesTwoWays",
			"2 of 2 racers won",
			false,
		},
		{
			"compare-and-set off at exchange",
			[]harness.Fault{redeemBlindly, fenceOff},
			"TestCodeRacesFourWays",
			"of 4 racers won",
			false,
		},
		{"replay unrevoked", []harness.Fault{replayUnrevoked}, "TestRefreshRacesTwoWays", "want status 401", false},
		{
			"replay unrevoked, as a cluster shows it",
			[]harness.Fault{replayUnrevoked},
			"TestRedisClusterFailsOverAndMovesSlots",
			"want status 401",
			true,
		},
		{
			"membership cached",
			membershipCached,
			"TestRefreshAgainstRemovalOfTheMembership",
			"an access token outlived the end",
			false,
		},
		{"fence off", postgresSilent, "TestHistoriesOfGrantsAreLegal", "an illegal history of a grant", false},
		{"repair off", []harness.Fault{repairOff}, "TestRedisLosesItsMemory", "want status 200", true},
		{
			"repair off, as a failover to the past shows it",
			[]harness.Fault{repairOff},
			"TestRedisSentinelFailsOver",
			"want status 200",
			true,
		},
		{"Redis blames the caller", []harness.Fault{redisBlamesTheCaller}, "TestRedisRefuses", "want status 503", true},
		{"scripts taken for known", scriptsTakenForKnown, "TestRedisForgetsScripts", "want status 200", true},
		{"undo off", []harness.Fault{undoOff}, "TestPostgresPoolExhausted", "want status 200", true},
		{"nothing is taken back", []harness.Fault{takeBackOff}, "TestStallsOfRedisLoseNoGrant", "was lost", true},
		{"deadlines off", []harness.Fault{deadlinesOff}, "TestStallsOfRedisLoseNoGrant", "was lost", true},
		{"asked once", []harness.Fault{askedOnce}, "TestPostgresOutcomeUnknown", "want status 200", true},
		{
			"revoked later",
			[]harness.Fault{revokedLater},
			"TestRefreshAgainstRevocation",
			"an access token outlived the end",
			true,
		},
		{
			"grants outlive clients",
			[]harness.Fault{grantsOutliveClients},
			"TestRefreshAgainstDeletionOfTheClient",
			"an access token outlived the end",
			true,
		},
		{
			"no time limits for requests",
			[]harness.Fault{timeoutsOff},
			"TestFloodHarmsNobodyElse",
			"slow connections were held",
			true,
		},
		{"MAC off", []harness.Fault{macOff}, "TestFloodHarmsNobodyElse", "a guess is answered with 200", true},
		{"Idempotency-Key apart", keyApart, "TestKilledAtRandom", "programmes of one order", true},
		{"no draining", drainOff, "TestRestartsFailNoRequest", "a request failed during a restart", true},
		{
			"membership cached, as the model sees it",
			membershipCached,
			"TestTheSystemIsAsItsModel",
			"the model says",
			true,
		},
		{
			"tenant comparison off",
			[]harness.Fault{workspaceNotCompared},
			"TestTheSystemIsAsItsModel",
			"the model says 403 FORBIDDEN",
			true,
		},
		{
			"a token is logged",
			[]harness.Fault{tokenLogged},
			"TestRefreshRacesTwoWays",
			"secrets of this run are in the services' logs",
			true,
		},
		{
			"a token is stored in the clear",
			[]harness.Fault{tokenStored},
			"TestRefreshRacesTwoWays",
			"secrets of this run are in Postgres",
			true,
		},
	}
}

// tries is how often a suite may miss a protection whose absence shows by chance, as a race does.
const tries = 3

// Every fault fits the source, those of the slow builds too.
func TestFaultsFitTheSource(t *testing.T) {
	t.Parallel()
	check := func(name string, faults []harness.Fault) {
		t.Run(name, func(t *testing.T) { harness.Faulty(t, faults...) })
	}
	for _, b := range bites() {
		check(b.name, b.faults)
	}
	check("named steps", append(deaths(), deathsAtWork()...))
}

func TestBrokenBuildsAreNoticed(t *testing.T) {
	harness.Note(t, "%d builds without a protection, each noticed by its suite", len(bites()))
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
