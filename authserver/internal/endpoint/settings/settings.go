package settings

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
)

// Routes are the handlers of a page and its forms, by path and method.
type Routes map[string]map[string]http.Handler

// Members reads memberships.
type Members interface {
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
}

// Access checks what authorized a request.
type Access interface {
	// StillAllowed returns audit.ErrNotAuthorized if it has ended.
	StillAllowed(ctx context.Context, a *audit.Authorization) error
}

// Offers creates the form that asks an administrator; accessrequest.Offers implements it.
type Offers interface {
	Offer(ctx context.Context, q accessrequest.Request, held perm.Set) (accessrequest.Offer, error)
}

// Deps are the dependencies of Settings.
type Deps struct {
	Members  Members
	Access   Access
	Sessions *session.Sessions
	Offers   Offers
	Pages    *ui.Pages
	Keys     seal.Keys
	Now      func() time.Time
	Log      *slog.Logger
}

// Settings is the common part of the pages. It is safe for concurrent use.
type Settings struct {
	Deps
	box   *seal.Box
	turns turns
}

// New returns Settings. It derives the key of the forms from the master keys.
func New(deps Deps) (*Settings, error) {
	box, err := seal.NewBox(deps.Keys, "settings form")
	if err != nil {
		return nil, err
	}
	return &Settings{deps, box, newTurns()}, nil
}

// Routes serves GET / and GET /settings, and takes the answer to the offer of a passkey and the choice of a workspace.
func (h *Settings) Routes() Routes {
	home := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Redirect(w, "/settings/user") })
	return Routes{
		"/":                       {"GET": home},
		"/settings":               {"GET": home},
		"/settings/passkey-offer": {"POST": h.declinePasskey()},
		"/settings/workspace":     {"POST": h.chooseWorkspace()},
	}
}

// OfferPasskey makes a page offer a passkey, if the session's sign-in gets an offer. Pages that show a credential only
// once must not: the user would lose it by declining.
func (h *Settings) OfferPasskey(v *Request, frame *ui.Frame) error {
	offers, err := h.Sessions.OffersPasskey(v.W, v.R, v.Current)
	if err != nil || !offers {
		return err
	}
	frame.PasskeyOffer, frame.DeviceName = h.NewKey(v), session.DeviceName(v.R.UserAgent())
	return nil
}

// declinePasskey serves POST /settings/passkey-offer: "Not now". It shows the section again.
func (h *Settings) declinePasskey() http.Handler {
	return h.Form(ui.Section{Name: "user"}, func(v *Request) error {
		if err := h.Sessions.DeclinePasskey(v.W, v.R); err != nil {
			return err
		}
		back := "/settings/user"
		if section, found := h.Pages.SectionNamed(v.Form.Get("section")); found {
			back = section.Path()
		}
		Redirect(v.W, back)
		return nil
	})
}

// chooseWorkspace serves POST /settings/workspace: tenant, section. It stores the workspace and shows the section
// again.
func (h *Settings) chooseWorkspace() http.Handler {
	return h.Form(ui.Section{Name: "user"}, func(v *Request) error {
		memberships, err := h.Memberships(v)
		if err != nil {
			return err
		}
		id, err := identity.Parse(v.Form.Get("tenant"))
		own := func(m workspace.Membership) bool { return m.Workspace.ID == id }
		if err == nil && slices.ContainsFunc(memberships, own) {
			if err := h.Sessions.ChooseWorkspace(v.W, v.R, id); err != nil {
				return err
			}
		}
		section, found := h.Pages.SectionNamed(v.Form.Get("section"))
		switch {
		case !found:
			Redirect(v.W, "/settings/user")
		case section.Needs == "" || err != nil:
			Redirect(v.W, section.Path())
		default:
			Redirect(v.W, section.Path()+"?tenant="+id.String())
		}
		return nil
	})
}

// ErrAnswered is the error of a request whose response was already written.
var ErrAnswered = errors.New("answered")

// errorFrame returns the frame of an error page. It reads no store: it has the choice of the workspace if the request
// has read the user's workspaces. It is empty for a user who is not signed in.
func (h *Settings) errorFrame(v *Request) ui.Frame {
	if v.Current.User.ID == uuid.Nil {
		return ui.Frame{}
	}
	frame := ui.Frame{
		Section: sectionOf(v.R),
		Held:    v.Current.Held,
		Script:  true,
		Person:  &ui.Person{Name: v.Current.User.Name, Email: v.Current.User.Email},
	}
	open := v.workspace
	if open == uuid.Nil {
		open = h.defaultWorkspace(v.R, v.memberships)
	} else {
		frame.WorkspaceID = open.String()
	}
	frame.Switcher = h.switcher(v.Current, ui.Section{Name: frame.Section}, v.memberships, open)
	return frame
}

// sectionOf returns the name of the section that a request is about.
func sectionOf(r *http.Request) string {
	below, found := strings.CutPrefix(r.URL.Path, "/settings/")
	if !found {
		return "error" // none is open
	}
	section, _, _ := strings.Cut(below, "/")
	return section
}

// Unavailable responds with 503 to a request whose session cannot be read. If the browser sent a session cookie, the
// page has the navigation of the settings, without the user's name and the links that need a permission.
func Unavailable(pages *ui.Pages, sessions *session.Sessions, w http.ResponseWriter, r *http.Request) {
	frame := ui.Frame{}
	if strings.HasPrefix(r.URL.Path, "/settings/") && sessions.Sent(r) {
		frame.Section = sectionOf(r)
	}
	pages.UnavailableIn(w, r, frame)
}

// NotFound serves the pages that do not exist. A signed-in user sees them with the navigation.
func (h *Settings) NotFound() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		v := &Request{W: w, R: r, Current: current}
		if err == nil && signedIn {
			_, err = h.Memberships(v)
		}
		if err != nil {
			h.finish(v, err)
			return
		}
		h.Pages.NotFoundIn(w, r, h.errorFrame(v))
	})
}

// finish writes the response for other errors.
func (h *Settings) finish(v *Request, err error) {
	w, r := v.W, v.R
	if err == nil || errors.Is(err, ErrAnswered) {
		return
	}
	if errors.Is(err, audit.ErrNotAuthorized) {
		h.Pages.ShowError(w, r, noLongerAllowed(h.errorFrame(v)))
		return
	}
	if errors.Is(err, session.ErrSecondFactor) {
		h.Pages.ShowError(w, r, factorNeeded(h.errorFrame(v)))
		return
	}
	h.Log.ErrorContext(r.Context(), "settings request failed", "error", err)
	switch {
	case errors.Is(err, store.ErrUnavailable) && v.Current.User.ID == uuid.Nil:
		Unavailable(h.Pages, h.Sessions, w, r)
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.UnavailableIn(w, r, h.errorFrame(v))
	default:
		h.Pages.InternalIn(w, r, h.errorFrame(v))
	}
}

func factorNeeded(frame ui.Frame) *ui.Message {
	return &ui.Message{
		Frame:   frame,
		Status:  http.StatusForbidden,
		Heading: "Use your second factor first",
		Text:    "You signed in with your password alone. Nothing was changed.",
		Links:   []ui.Link{{Href: "/login/again?return=/settings/security", Text: "Confirm with your second factor"}},
	}
}

func noLongerAllowed(frame ui.Frame) *ui.Message {
	return &ui.Message{
		Frame:   frame,
		Status:  http.StatusForbidden,
		Heading: "You no longer have permission to do this",
		Text:    "You were signed out, or lost a permission, while we processed your request. Nothing was changed.",
		Links:   []ui.Link{{Href: "/settings/user", Text: "Back to your settings"}},
	}
}

// Redirect writes a 303 to a local path.
func Redirect(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
