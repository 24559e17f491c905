package settings

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A request is one request of a signed-in user.
type request struct {
	w       http.ResponseWriter
	r       *http.Request
	current session.CurrentUser
	form    url.Values // of a POST
	key     formKey    // of a POST: the key of the page that the form was on
}

const maxForm = 64 << 10

// page serves a GET. It sends a user who is not signed in to the sign-in page, which leads back.
func (h *Handler) page(serve func(*request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			goOn(w, "/login?return="+url.QueryEscape(r.URL.RequestURI()))
			return
		}
		if err == nil {
			err = serve(&request{w: w, r: r, current: current})
		}
		h.finish(w, r, err)
	})
}

// form serves a POST from the server's own origin. It checks, in this order, the size, the sign-in and the key. section
// is the page that the form is on.
func (h *Handler) form(section string, serve func(*request) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				h.Pages.TooLarge(w, r)
			} else {
				h.Pages.Fault(w, r, outdated(section))
			}
			return
		}
		back := pageOf(section, r.PostForm)
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		switch {
		case err != nil:
			h.finish(w, r, err)
			return
		case !signedIn:
			goOn(w, "/login?return="+url.QueryEscape(back)+"&"+ui.Unsent+"=1")
			return
		}
		key, ok := h.openKey(r.PostForm.Get("key"), current)
		if !ok {
			h.Pages.Fault(w, r, outdated(back))
			return
		}
		h.finish(w, r, serve(&request{w: w, r: r, current: current, form: r.PostForm, key: key}))
	}))
}

// pageOf returns the URL of the page that a form is on, in the form's workspace.
func pageOf(section string, form url.Values) string {
	if workspaceID, err := identity.Parse(form.Get("tenant")); err == nil {
		return section + "?tenant=" + workspaceID.String()
	}
	return section
}

func outdated(page string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is out of date",
		Text:    "It was opened in another session, for example before you signed in again. Nothing was changed.",
		Next:    "Open the page again and repeat your change.",
		Links:   []ui.Link{{Href: page, Text: "Open the page again"}},
	}
}

// A formKey binds a form to the sign-in that it was shown to, and names what the form creates: the same form sent twice
// creates one thing.
type formKey struct {
	SignIn uuid.UUID `json:"s"`
	Makes  uuid.UUID `json:"m"`
}

func (h *Handler) newKey(v session.CurrentUser) string {
	content, _ := json.Marshal(formKey{SignIn: v.SignInID, Makes: identity.New()}) // two UUIDs always marshal
	return h.box.Seal(content)
}

func (h *Handler) openKey(text string, v session.CurrentUser) (formKey, bool) {
	content, err := h.box.Open(text)
	if err != nil {
		return formKey{}, false
	}
	var key formKey
	if err := json.Unmarshal(content, &key); err != nil {
		return formKey{}, false
	}
	return key, key.SignIn == v.SignInID
}

// frame returns the frame of a settings page, with the flash message for it.
func (h *Handler) frame(v *request, section, title string) (ui.Frame, error) {
	notice, err := h.Sessions.TakeFlash(v.w, v.r)
	if err != nil {
		return ui.Frame{}, err
	}
	return ui.Frame{
		Title:   title,
		Section: section,
		Manages: v.current.Manages,
		Notice:  notice,
		Script:  true,
		Person:  &ui.Person{Name: v.current.User.Name, Email: v.current.User.Email},
	}, nil
}

// frameAt returns the frame of a page of one workspace. Its navigation links to the other pages of that workspace.
func (h *Handler) frameAt(v *request, here workspaceScope, section, title string) (ui.Frame, error) {
	frame, err := h.frame(v, section, title)
	frame.WorkspaceID = here.Workspace.ID.String()
	return frame, err
}

// done redirects to a page, which shows notice.
func (h *Handler) done(v *request, path, notice string) error {
	if err := h.Sessions.Flash(v.w, v.r, notice); err != nil {
		return err
	}
	goOn(v.w, path)
	return nil
}

// event returns an audit event of the user's action in a workspace.
func (v *request) event(
	workspaceID *uuid.UUID,
	action audit.Action,
	subject string,
	detail map[string]any,
) audit.Event {
	event := v.current.Event(v.r.Context(), action, subject)
	event.WorkspaceID, event.Detail = workspaceID, detail
	return event
}

// eventHere returns event with authorization that requires account:api:access in the workspace, and the permissions in
// more.
func (v *request) eventHere(
	here workspaceScope,
	action audit.Action,
	subject string,
	detail map[string]any,
	more ...perm.Permission,
) audit.Event {
	event := v.event(&here.Workspace.ID, action, subject, detail)
	event.Authorization.WorkspaceID = here.Workspace.ID
	event.Authorization.Permissions = perm.NewSet(append(more, perm.AccountAPIAccess)...)
	return event
}

// id reads the identifier in the form.
func (v *request) id() (uuid.UUID, bool) {
	id, err := identity.Parse(v.form.Get("id"))
	return id, err == nil
}
