package doctor

import "maps"

// A diagnosis is what can be found: a symptom in words, what the client makes of it, and how to mend it. {client} is
// the client's name.
type diagnosis struct {
	verdict            Verdict
	says, effect, mend string
}

// diagnoses is the table of everything that can be found, by code.
func diagnoses() map[string]diagnosis {
	all := map[string]diagnosis{}
	for _, some := range []map[string]diagnosis{
		ofNetworks(),
		ofFirstCalls(),
		ofChallenges(),
		ofDocuments(),
		ofResources(),
		ofServers(),
		ofAliases(),
		ofClients(),
		ofAuthorizeEndpoints(),
		ofConsents(),
		ofCallbacks(),
		ofTokenEndpoints(),
		ofTokens(),
		ofCalls(),
		ofTools(),
		ofWrongTokens(),
		ofRefreshes(),
		ofCleanUps(),
	} {
		maps.Copy(all, some)
	}
	return all
}
