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
	Grantable  perm.Set // every permission that connectors may have
	Log        []ConnectorLog
	Only       bool // the log is limited to one connector
}

func (*Connectors) page() string { return "connectors" }

// A PolicyForm is the current policy, or the submitted one with its errors.
type PolicyForm struct {
	Platforms []PlatformChoice
	Chosen    perm.Set
	Days      string
	Seen      string // digest of the policy that the page showed before the change
	MaxDays   int
	Notes     map[string]string // field → its error
}

// A PlatformChoice is one platform of connectors.
type PlatformChoice struct {
	ID, Name, Sentence string
	Chosen             bool
}

// A PolicyWarning is the effect of a lower policy on existing connections, which the user must confirm.
type PolicyWarning struct {
	Effects []string // in words
	Policy  PolicyForm
}
