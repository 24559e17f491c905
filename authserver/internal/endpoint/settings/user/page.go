// Package user serves the settings page with the name, e-mail address and workspaces of the user.
//
//	GET /settings/user
package user

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "user", Title: "User"}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct{ *settings.Settings }

// New returns a Handler.
func New(s *settings.Settings) *Handler { return &Handler{s} }

// Routes returns the page's routes.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{Section.Path(): {"GET": h.show()}}
}

// A view is Settings → User.
type view struct {
	ui.Frame
	Workspaces []ui.Workspace
}

func (*view) Template() string { return "user" }

// show serves GET /settings/user.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		memberships, err := h.Members.Memberships(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.Frame(v, Section)
		if err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, &view{frame, settings.Workspaces(memberships)})
		return nil
	})
}
