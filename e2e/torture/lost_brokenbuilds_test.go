package torture

import "github.com/almonerhq/almoner/e2e/harness"

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
		{
			slow:   true,
			faults: anySenderRepeats,
			detects: []detection{{
				"a thief without a key gets the answer again", "TestLostAnswers_CostNoGrant",
				"a thief without the key got a token",
			}},
		},
		{
			slow:   true,
			faults: []harness.Fault{keyIgnored},
			detects: []detection{{
				"a thief with another key gets the answer again", "TestLostAnswers_CostNoGrant",
				"a thief without the key got a token",
			}},
		},
		{
			slow:   true,
			faults: repeatedForever,
			detects: []detection{
				{"answers are given again forever", refusals, "60 s over: a repeated request got a token"},
			},
		},
		{
			slow:    true,
			faults:  []harness.Fault{repeatedBeforeStanding},
			detects: []detection{{"standing is not checked again", refusals, "a repeated request got a token"}},
		},
		{
			slow:   true,
			faults: []harness.Fault{repeatedWithoutRedis},
			detects: []detection{{
				"an answer is given again although Redis has lost it", refusals, "a repeated request got a token",
			}},
		},
	}
}
