package ui

import "github.com/almonerhq/almoner/shared/perm"

// Connectors is Settings → Connectors, for one workspace.
type Connectors struct {
	Frame
	Key        string // proves that a form came from this page (endpoint/settings)
	Workspaces []Workspace
	Workspace  Workspace
	Off        bool // the workspace's LLM integration is switched off
	Policy     PolicyForm
	Warning    *PolicyWarning
	Grantable  perm.Set // everything that connectors may have
	Log        []ConnectorLog
	Only       bool // the log is that of one connector
}

func (*Connectors) page() string { return "connectors" }

// A PolicyForm is the policy, or what was typed for another, and what was wrong with that.
type PolicyForm struct {
	Platforms []PlatformChoice
	Chosen    perm.Set
	Days      string
	Seen      string // digest of the policy that was on the screen when it was typed over
	MaxDays   int
	Notes     map[string]string // field → what is wrong with it
}

// A PlatformChoice is one platform that connectors may be of.
type PlatformChoice struct {
	ID, Name, Sentence string
	Chosen             bool
}

// A PolicyWarning is what a lower policy would do to the connections that exist: the page asks before it does it.
type PolicyWarning struct {
	Effects []string // in words
	Policy  PolicyForm
}
