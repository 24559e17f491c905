package connectors

import (
	"fmt"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/perm"
)

// A view is Settings → Connectors, for one workspace.
type view struct {
	ui.Frame
	Key         string // proves that a form came from this page (endpoint/settings)
	Workspaces  []ui.Workspace
	Workspace   ui.Workspace
	LLM         llmForm
	Policy      policyForm
	PolicyNow   string // what the stored policy allows, in short
	Warning     *policyWarning
	Grantable   perm.Set // every permission that connectors may have
	Connections connectionList
	Connectors  []connector
	Pages       pager // of the connectors
}

func (*view) Template() string { return "connectors" }

// An llmForm switches the workspace's LLM integration.
type llmForm struct {
	On      bool // the LLM integration is on
	Changes bool // the user may change it
	Confirm bool // the page asks whether to switch it off
	Live    int  // connections that lose their access if it is switched off
	Ask     ui.Ask
}

// A policyForm is the current policy, or the submitted one with its errors.
type policyForm struct {
	Platforms []platformChoice
	Chosen    perm.Set
	Days      string
	Seen      string // digest of the policy that the page showed before the change
	MaxDays   int
	Open      bool // the form is shown, and not only its summary
}

// summary returns what the policy allows, in short.
func (p policyForm) summary() string {
	var names []string
	for _, platform := range p.Platforms {
		if platform.Chosen {
			names = append(names, platform.Name)
		}
	}
	return fmt.Sprintf("%s · %d of %d permissions · %s days", strings.Join(names, ", "),
		len(p.Chosen.Intersect(perm.ForConnectors())), len(perm.ForConnectors()), p.Days)
}

// A platformChoice is one platform of connectors.
type platformChoice struct {
	ID, Name, Sentence string
	Chosen             bool
}

// A policyWarning is the effect of a lower policy on existing connections, which the user must confirm.
type policyWarning struct {
	Effects []string // in words
	Policy  policyForm
}
