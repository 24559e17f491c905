// Package assistants serves the settings page that tells a user how to connect an assistant.
//
//	GET /settings/connect
package assistants

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/perm"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "connect", Title: "Connect an assistant"}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	*settings.Settings
	modules Modules
	address string
}

// Modules reads which modules the workspaces of a user can use; postgres.Store implements it.
type Modules interface {
	Modules(ctx context.Context, user uuid.UUID) (map[uuid.UUID]map[string]workspace.ModuleState, error)
}

// New returns a Handler. baseURL is the base URL of the API.
func New(s *settings.Settings, modules Modules, baseURL string) *Handler {
	return &Handler{s, modules, baseURL + "/mcp"}
}

// Routes returns the route of the page.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{Section.Path(): {"GET": h.show()}}
}

// A view is Settings → Connect an assistant.
type view struct {
	ui.Frame
	Address    string // of the MCP endpoint
	Workspaces []place
}

func (*view) Template() string { return "connect" }

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

// mostAsks limits the buttons of the page.
const mostAsks = 20

// show serves GET /settings/connect.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		memberships, err := h.Memberships(v)
		if err != nil {
			return err
		}
		frame, err := h.Frame(v, Section)
		if err != nil {
			return err
		}
		modules, err := h.modules.Modules(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		page := &view{Frame: frame, Address: h.address}
		for i, m := range memberships {
			one := h.placeOf(m)
			one.Without = missingModule(one.Allowed, modules[m.Workspace.ID])
			if !one.On && !one.Enables && i < mostAsks {
				ask, err := h.Ask(v, m, nil, "", Section.Path())
				if err != nil {
					return err
				}
				one.Ask = &ask
			}
			page.Workspaces = append(page.Workspaces, one)
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, page)
		return nil
	})
}

func (h *Handler) placeOf(m workspace.Membership) place {
	policy := m.Workspace.Connectors
	out := place{
		ID:      m.Workspace.ID.String(),
		Name:    m.Workspace.Name,
		Manages: m.Permissions.Has(perm.AccountAPIAccess),
		On:      m.Workspace.LLMIntegration,
		Allowed: m.Permissions.Intersect(policy.Permissions).Usable(h.address),
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
