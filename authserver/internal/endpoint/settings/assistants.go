package settings

import (
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An assistantsView is Settings → Connect an assistant. It tells a user how.
type assistantsView struct {
	page
	Address    string // of the MCP endpoint
	Workspaces []place
}

func (*assistantsView) Template() string { return "connect" }

// A place is what an assistant can do in one workspace.
type place struct {
	ID      string
	Name    string
	Manages bool     // the user may change what connectors may do there
	Enables bool     // the user may switch the LLM integration on
	Without string   // why an assistant cannot do what is allowed, or ""
	On      bool     // the LLM integration is on
	Allowed perm.Set // what the user can let an assistant do
	Refused []string // platforms that the workspace does not allow
	Days    int      // how long a connection lasts
	Ask     *ui.Ask  // nil if the LLM integration is on, or the user may switch it on
}

// mostPlacesAsk limits the buttons of the page that ask an administrator.
const mostPlacesAsk = 20

func (s *Settings) showAssistants(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	modules, err := s.Store.Modules(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &assistantsView{Address: s.BaseURL + "/mcp"}
	for i, m := range memberships {
		one := placeOf(m, view.Address)
		one.Without = missingModule(one.Allowed, modules[m.Workspace.ID])
		if !one.On && !one.Enables && i < mostPlacesAsk {
			ask, err := r.offer(m, nil, "", r.section.Path())
			if err != nil {
				return err
			}
			one.Ask = &ask
		}
		view.Workspaces = append(view.Workspaces, one)
	}
	return r.show(view)
}

func placeOf(m workspace.Membership, address string) place {
	policy := m.Workspace.Connectors
	out := place{
		ID:      m.Workspace.ID.String(),
		Name:    m.Workspace.Name,
		Manages: m.Permissions.Has(perm.AccountAPIAccess),
		On:      m.Workspace.LLMIntegration,
		Allowed: m.Permissions.Intersect(policy.Permissions).Usable(address),
		Days:    policy.Days,
	}
	out.Enables = out.Manages && m.Permissions.Has(perm.AccountWriteMembers)
	for _, platform := range workspace.Platforms() {
		if !slices.Contains(policy.Platforms, platform) {
			out.Refused = append(out.Refused, platform.Name())
		}
	}
	return out
}

// missingModule says which module of the permissions cannot be used, or returns "".
func missingModule(allowed perm.Set, states map[string]workspace.ModuleState) string {
	for _, p := range allowed {
		if !p.OfModule() {
			continue
		}
		state, name := states[p.Module()], strings.ToUpper(p.Module()[:1])+p.Module()[1:]
		switch {
		case !state.Enabled:
			return "The module " + name + " is off in this workspace, so assistants cannot use it. Ask the person " +
				"who runs this service to enable it."
		case !state.Provisioned:
			return "The module " + name + " is not set up in this workspace yet, so assistants cannot use it. Ask " +
				"the person who runs this service to set it up."
		}
	}
	return ""
}
