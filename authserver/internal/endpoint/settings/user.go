package settings

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// User serves GET /settings/user.
func (h *Handler) User() http.Handler {
	return h.page(func(v *request) error {
		places, err := h.Store.Memberships(v.r.Context(), v.visitor.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.frame(v, "user", "User")
		if err != nil {
			return err
		}
		h.Pages.Show(v.w, v.r, http.StatusOK, &ui.User{Frame: frame, Workspaces: workspaces(places, nil)})
		return nil
	})
}

func workspaces(places []workspace.Membership, chosen *workspace.Membership) []ui.Workspace {
	var out []ui.Workspace
	for _, place := range places {
		one := workspaceView(place)
		one.Chosen = chosen != nil && chosen.Workspace.ID == place.Workspace.ID
		out = append(out, one)
	}
	return out
}

func workspaceView(place workspace.Membership) ui.Workspace {
	return ui.Workspace{
		ID:           place.Workspace.ID.String(),
		Name:         place.Workspace.Name,
		Organisation: place.Workspace.Organisation,
	}
}
