package doctor

import "maps"

// A diagnosis describes a possible finding: the symptom, its effect on the client, and the remedy. {client}
// is replaced by the client's name.
type diagnosis struct {
	verdict            Verdict
	says, effect, mend string
}

// diagnoses returns the table of all possible findings by code.
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
