// Package user serves the settings page with the name, e-mail address and workspaces of the user.
//
//	GET  /settings/user
//	POST /settings/user/name
//	GET  /settings/user/email
//	POST /settings/user/email
//	GET  /settings/user/delete
//	POST /settings/user/delete
package user

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/displayname"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "user", Title: "User"}

// Users changes users.
type Users interface {
	SetName(ctx context.Context, id uuid.UUID, name string, event audit.Event) error
}

// Deps are the dependencies of a Handler.
type Deps struct {
	*settings.Settings
	Users    Users
	Accounts *useraccount.Service
	Mails    bool // the deployment sends mail
	Proxies  web.Proxies
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// Routes returns the routes of the page and its form.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():             {"GET": h.page()},
		Section.Path() + "/name":   {"POST": h.setName()},
		Section.Path() + "/email":  {"GET": h.showEmail(), "POST": h.changeEmail()},
		Section.Path() + "/delete": {"GET": h.showDeletion(), "POST": h.deleteAccount()},
	}
}

// A view is Settings → User.
type view struct {
	ui.Frame
	Key        string
	Name       string // current, or as submitted
	Note       string // what is wrong with the name, or ""
	Workspaces []ui.Workspace
}

func (*view) Template() string { return "user" }

// page serves GET /settings/user.
func (h *Handler) page() http.Handler {
	return h.Page(func(v *settings.Request) error {
		return h.show(v, http.StatusOK, v.Current.User.Name, "")
	})
}

func (h *Handler) show(v *settings.Request, status int, name, note string) error {
	memberships, err := h.Memberships(v)
	if err != nil {
		return err
	}
	frame, err := h.Frame(v, Section)
	if err != nil {
		return err
	}
	page := &view{
		Frame:      frame,
		Key:        h.NewKey(v),
		Name:       name,
		Note:       note,
		Workspaces: settings.Workspaces(memberships),
	}
	if err := h.OfferPasskey(v, &page.Frame); err != nil {
		return err
	}
	if note != "" {
		page.Refuse("The name was not saved.", ui.ProblemAt("name", "name", "Your name", note))
	}
	h.Pages.Show(v.W, v.R, status, page)
	return nil
}

// setName serves POST /settings/user/name: name.
func (h *Handler) setName() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		name := strings.TrimSpace(v.Form.Get("name"))
		if note := displayname.Check(name, displayname.MaxLength); note != "" {
			return h.show(v, http.StatusBadRequest, v.Form.Get("name"), note)
		}
		event := v.Event(nil, audit.UserRenamed, v.Current.Actor(), nil)
		if err := h.Users.SetName(v.R.Context(), v.Current.User.ID, name, event); err != nil {
			return err
		}
		return h.Done(v, Section.Path(), "Your name was saved.")
	})
}
