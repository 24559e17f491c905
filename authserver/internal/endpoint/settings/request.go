package settings

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Request is one request of a signed-in user.
type Request struct {
	W       http.ResponseWriter
	R       *http.Request
	Current session.CurrentUser
	Form    url.Values // of a POST
	Key     FormKey    // of a POST: the key of the page that the form was on

	memberships []workspace.Membership // of the user; nil until Memberships reads them
	workspace   uuid.UUID              // of the page; uuid.Nil if it has none, or it is not known yet
}

// Memberships reads the memberships of the user.
func (h *Settings) Memberships(v *Request) ([]workspace.Membership, error) {
	memberships, err := h.Members.Memberships(v.R.Context(), v.Current.User.ID)
	v.memberships = memberships
	return memberships, err
}

const maxForm = 64 << 10

// Page serves a GET. It redirects a user who is not signed in to the sign-in page, which redirects back.
func (h *Settings) Page(serve func(*Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			Redirect(w, "/login?return="+url.QueryEscape(r.URL.RequestURI()))
			return
		}
		v := &Request{W: w, R: r, Current: current}
		if err == nil {
			err = serve(v)
		}
		h.finish(v, err)
	})
}

// Form serves a POST from the server's own origin. It checks, in this order, the size, the sign-in and the key. section
// is the page that the form is on.
func (h *Settings) Form(section ui.Section, serve func(*Request) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				h.Pages.TooLarge(w, r)
			} else {
				h.Pages.ShowError(w, r, outdated(section.Path()))
			}
			return
		}
		back := pageOf(section, r.PostForm)
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		v := &Request{W: w, R: r, Current: current, Form: r.PostForm}
		switch {
		case err != nil:
			h.finish(v, err)
			return
		case !signedIn:
			Redirect(w, "/login?return="+url.QueryEscape(back)+"&"+ui.Unsent+"=1")
			return
		}
		key, ok := h.openKey(r.PostForm.Get("key"), current)
		if !ok {
			m := outdated(back)
			m.Frame = h.errorFrame(v)
			h.Pages.ShowError(w, r, m)
			return
		}
		v.Key = key
		h.finish(v, serve(v))
	}))
}

// pageOf returns the URL of the page that a form is on, in the form's workspace.
func pageOf(section ui.Section, form url.Values) string {
	if workspaceID, err := identity.Parse(form.Get("tenant")); err == nil {
		return section.Path() + "?tenant=" + workspaceID.String()
	}
	return section.Path()
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

// A FormKey binds a form to the sign-in that it was shown to, and names what the form creates: the same form sent twice
// creates one thing.
type FormKey struct {
	SignIn uuid.UUID `json:"s"`
	Makes  uuid.UUID `json:"m"`
}

// NewKey returns the key of the forms on a page.
func (h *Settings) NewKey(v *Request) string { return h.keyFor(v.Current) }

func (h *Settings) keyFor(user session.CurrentUser) string {
	content, _ := json.Marshal(FormKey{SignIn: user.SignInID, Makes: identity.New()}) // two UUIDs always marshal
	return h.box.Seal(content)
}

func (h *Settings) openKey(text string, v session.CurrentUser) (FormKey, bool) {
	content, err := h.box.Open(text)
	if err != nil {
		return FormKey{}, false
	}
	var key FormKey
	if err := json.Unmarshal(content, &key); err != nil {
		return FormKey{}, false
	}
	return key, key.SignIn == v.SignInID
}

// Frame returns the frame of a settings page that shows no single workspace, with the flash message for it.
func (h *Settings) Frame(v *Request, section ui.Section) (ui.Frame, error) {
	frame, err := h.frame(v, section)
	if err != nil {
		return ui.Frame{}, err
	}
	memberships, err := h.Memberships(v)
	if err != nil {
		return ui.Frame{}, err
	}
	frame.Switcher = h.switcher(v.Current, section, memberships, h.defaultWorkspace(v.R, memberships))
	return frame, nil
}

// Switcher returns the form in the header for pages of other packages that belong to a section. It is nil if there is
// nothing to choose.
func (h *Settings) Switcher(r *http.Request, user session.CurrentUser, section string) (*ui.Switcher, error) {
	memberships, err := h.Members.Memberships(r.Context(), user.User.ID)
	if err != nil {
		return nil, err
	}
	return h.switcher(user, ui.Section{Name: section}, memberships, h.defaultWorkspace(r, memberships)), nil
}

// switcher returns nil if there is nothing to choose. It names the organisation only where workspaces have equal names.
func (h *Settings) switcher(
	user session.CurrentUser,
	section ui.Section,
	memberships []workspace.Membership,
	open uuid.UUID,
) *ui.Switcher {
	if len(memberships) < 2 {
		return nil
	}
	workspaces := chosen(memberships, open)
	same := map[string]int{} // number of workspaces by name
	for _, w := range workspaces {
		same[w.Name]++
	}
	for i, w := range workspaces {
		if same[w.Name] == 1 {
			workspaces[i].Organisation = ""
		}
	}
	return &ui.Switcher{Key: h.keyFor(user), Section: section.Name, Workspaces: workspaces}
}

func (h *Settings) frame(v *Request, section ui.Section) (ui.Frame, error) {
	notice, err := h.Sessions.TakeFlash(v.W, v.R)
	if err != nil {
		return ui.Frame{}, err
	}
	return ui.Frame{
		Title:   section.Title,
		Section: section.Name,
		Parent:  section.Parent,
		Held:    v.Current.Held,
		Notice:  notice,
		Script:  true,
		Person:  &ui.Person{Name: v.Current.User.Name, Email: v.Current.User.Email},
	}, nil
}

// FrameIn returns the frame of a page of one workspace. Its navigation links to the other pages of that workspace.
func (h *Settings) FrameIn(v *Request, here Scope, section ui.Section) (ui.Frame, error) {
	frame, err := h.frame(v, section)
	frame.WorkspaceID = here.Workspace.ID.String()
	frame.Switcher = h.switcher(v.Current, section, here.Every, here.Workspace.ID)
	return frame, err
}

// Done redirects to a page, which shows notice.
func (h *Settings) Done(v *Request, path, notice string) error {
	if err := h.Sessions.Flash(v.W, v.R, notice); err != nil {
		return err
	}
	Redirect(v.W, path)
	return nil
}

// Event returns an audit event of the user's action in a workspace.
func (v *Request) Event(
	workspaceID *uuid.UUID,
	action audit.Action,
	subject string,
	detail map[string]any,
) audit.Event {
	event := v.Current.Event(v.R.Context(), action, subject)
	event.WorkspaceID, event.Detail = workspaceID, detail
	return event
}

// EventIn returns Event with authorization that requires the page's permission in the workspace, and the permissions
// in more.
func (v *Request) EventIn(
	here Scope,
	action audit.Action,
	subject string,
	detail map[string]any,
	more ...perm.Permission,
) audit.Event {
	event := v.Event(&here.Workspace.ID, action, subject, detail)
	event.Authorization.WorkspaceID = here.Workspace.ID
	event.Authorization.Permissions = perm.NewSet(append(more, here.Needs)...)
	return event
}

// ID reads the identifier in the form.
func (v *Request) ID() (uuid.UUID, bool) {
	id, err := identity.Parse(v.Form.Get("id"))
	return id, err == nil
}
