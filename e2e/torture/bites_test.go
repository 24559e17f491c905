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
}

func bites() []bite {
	return []bite{
		{"compare-and-set off at refresh", append(slices.Clone(rotateBlindly), fenceOff), "TestRefreshRacesTwoWays", "2 of 2 racers won"},
		{"compare-and-set off at exchange", []harness.Fault{redeemBlindly, fenceOff}, "TestCodeRacesFourWays", "of 4 racers won"},
		{"replay unrevoked", []harness.Fault{replayUnrevoked}, "TestRefreshRacesTwoWays", "want status 401"},
		{"membership cached", membershipCached, "TestRefreshAgainstRemovalOfTheMembership", "an access token outlived the end"},
		{"fence off", postgresSilent, "TestHistoriesOfGrantsAreLegal", "an illegal history of a grant"},
		{"repair off", []harness.Fault{repairOff}, "TestRedisLosesItsMemory", "want status 200"},
		{"Redis blames the caller", []harness.Fault{redisBlamesTheCaller}, "TestRedisRefuses", "want status 503"},
		{"undo off", []harness.Fault{undoOff}, "TestPostgresPoolExhausted", "want status 200"},
		{"no time limits for requests", []harness.Fault{timeoutsOff}, "TestFloodHarmsNobodyElse", "slow connections were held"},
		{"no draining", drainOff, "TestRestartsFailNoRequest", "a request failed during a restart"},
	}
}

func TestBrokenBuildsAreNoticed(t *testing.T) {
	note(t, "%d builds without a protection, each noticed by its suite", len(bites()))
	for _, b := range bites() {
		t.Run(b.name, func(t *testing.T) {
			output, passed := harness.RunAgainst(t, harness.Broken(t, b.faults...), "^"+b.suite+"$", evidenceVariable+"=")
			if passed {
				t.Fatalf("%s passed against a build with: %s", b.suite, b.name)
			}
			if !strings.Contains(output, b.complaint) {
				t.Errorf("%s failed, but not because %q:\n%s", b.suite, b.complaint, harness.Redact(output))
			}
		})
	}
}
