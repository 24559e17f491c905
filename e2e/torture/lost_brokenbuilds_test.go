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
