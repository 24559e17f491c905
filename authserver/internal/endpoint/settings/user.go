package settings

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// User serves GET /settings/user.
func (h *Handler) User() http.Handler {
	return h.page(func(v *request) error {
		memberships, err := h.Store.Memberships(v.r.Context(), v.current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.frame(v, "user", "User")
		if err != nil {
			return err
		}
		h.Pages.Show(v.w, v.r, http.StatusOK, &ui.User{Frame: frame, Workspaces: workspaces(memberships, nil)})
		return nil
	})
}

func workspaces(memberships []workspace.Membership, chosen *workspace.Membership) []ui.Workspace {
	var out []ui.Workspace
	for _, m := range memberships {
		one := workspaceView(m)
		one.Chosen = chosen != nil && chosen.Workspace.ID == m.Workspace.ID
		out = append(out, one)
	}
	return out
}

func workspaceView(m workspace.Membership) ui.Workspace {
	return ui.Workspace{
		ID:           m.Workspace.ID.String(),
		Name:         m.Workspace.Name,
		Organisation: m.Workspace.Organisation,
	}
}
