package developers

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// An appsView is the page of the OAuth applications of one workspace.
type appsView struct {
	common
	List settings.List
	Apps []app
}

func (*appsView) Template() string { return "applications" }

// showApps serves GET /settings/applications.
func (h *Handler) showApps(v *settings.Request, here settings.Scope) error {
	return h.listApps(v, here, http.StatusOK, func(*appsView) {})
}

// listApps shows the applications, changed by adjust.
func (h *Handler) listApps(v *settings.Request, here settings.Scope, status int, adjust func(*appsView)) error {
	clients, err := h.Store.Clients(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	common, err := h.common(v, here, applications)
	if err != nil {
		return err
	}
	view := &appsView{common: common}
	for _, c := range clients {
		view.Apps = append(view.Apps, appView(c))
	}
	adjust(view)
	shown := func(a app) bool { return view.Outcome != nil && a.ID == view.Outcome.ID }
	view.Apps, view.List = settings.Listing[app]{
		Of:    "applications",
		Path:  here.Path(applications),
		First: shown,
		Matches: func(a app, words string) bool {
			return settings.Contains(words, a.Name, a.ID, a.Platform, strings.Join(a.Redirects, " "))
		},
	}.Select(v.R.URL.Query(), view.Apps)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}

// A newAppView is the page with the form for a new application.
type newAppView struct {
	common
	appForm
	Resources []string
}

func (*newAppView) Template() string { return "newapp" }

// showNewApp serves GET /settings/applications/new.
func (h *Handler) showNewApp(v *settings.Request, here settings.Scope) error {
	return h.newApp(v, here, http.StatusOK, func(*newAppView) {})
}

// newApp shows the form, changed by adjust.
func (h *Handler) newApp(v *settings.Request, here settings.Scope, status int, adjust func(*newAppView)) error {
	common, err := h.common(v, here, applications)
	if err != nil {
		return err
	}
	common.Title = "Register an application"
	view := &newAppView{
		common:    common,
		appForm:   appForm{Kind: string(client.Confidential), Resource: h.BaseURL + "/mcp"}, // which assistants use
		Resources: h.Resources,
	}
	adjust(view)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}
