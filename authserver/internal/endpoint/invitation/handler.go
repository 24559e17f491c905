package invitation

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"
)

// Deps are the dependencies of a Handler.
type Deps struct {
	Members   *membership.Service
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Hash      func(password string) (credential.Secret, error)
	Devices   *session.Devices
	Attempts  *session.Attempts
	Passkeys  *PasskeyDeps // nil if the deployment offers no passkeys
	Pages     *ui.Pages
	Proxies   web.Proxies
	Keys      seal.Keys
	Log       *slog.Logger
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	Deps
	box *seal.Box
}

// New returns a Handler. It derives the key of the forms from the master keys.
func New(deps Deps) (*Handler, error) {
	box, err := seal.NewBox(deps.Keys, "invitation form")
	if err != nil {
		return nil, err
	}
	return &Handler{deps, box}, nil
}

// A view is the page of an open invitation.
type view struct {
	ui.Frame
	Workspace    string
	Organisation string
	Inviter      string
	Email        string
	Permissions  perm.Set
	HasAccount   bool   // a user has the address; false if the link was not mailed
	Mailed       bool   // the link was mailed
	Token        string // in the forms
	Key          string // of a signed-in user's form: binds it to the sign-in
	Passkeys     bool   // the deployment offers passkeys
	Here         string // local path of the page
	SignIn       string // local path of the sign-in that leads back here
	Name         string // as typed
	NameNote     string // the error of this field
	PasswordNote string // the error of this field
}

func (*view) Template() string { return "invitation" }

// A visit is a request with the token of an open invitation.
type visit struct {
	w        http.ResponseWriter
	r        *http.Request
	token    string
	offer    membership.Offer
	current  session.CurrentUser
	signedIn bool
	form     url.Values // of a POST
}

// tellsAccount reports whether a user has the address, and the page may say so. If the link was not mailed, the inviter
// has it, who must not learn this.
func (v visit) tellsAccount() bool { return v.offer.HasAccount && v.offer.Mailed }

// visit reads the invitation of a token and the user at the browser.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request, token string, form url.Values) (visit, error) {
	v := visit{w: w, r: r, token: token, form: form}
	var err error
	if v.current, v.signedIn, err = h.Sessions.CurrentUser(r.Context()); err == nil {
		v.offer, err = h.Members.Offer(r.Context(), credential.Secret(token))
	}
	return v, err
}

// Page serves GET /invitation.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	v, err := h.visit(w, r, r.URL.Query().Get("token"), nil)
	if err != nil {
		h.fail(v, err)
		return
	}
	h.show(v, http.StatusOK, func(*view) {})
}

// show shows the invitation, changed by adjust, or that it is for another user.
func (h *Handler) show(v visit, status int, adjust func(*view)) {
	here := "/invitation?token=" + url.QueryEscape(v.token)
	page := &view{
		Frame:        ui.Frame{Title: "Invitation to " + v.offer.Workspace},
		Workspace:    v.offer.Workspace,
		Organisation: v.offer.Organisation,
		Inviter:      v.offer.Inviter,
		Email:        v.offer.Email,
		Permissions:  v.offer.Permissions,
		HasAccount:   v.tellsAccount(),
		Mailed:       v.offer.Mailed,
		Token:        v.token,
		Passkeys:     h.Passkeys != nil,
		Here:         here,
		SignIn:       "/login?return=" + url.QueryEscape(here),
	}
	page.AsksPasskey = h.Passkeys != nil && !v.signedIn && !v.tellsAccount()
	if v.signedIn {
		page.Person = &ui.Person{Name: v.current.User.Name, Email: v.current.User.Email}
		page.Key = h.key(v)
		if spelling.Key(v.current.User.Email) != spelling.Key(v.offer.Email) {
			h.showOther(v, page)
			return
		}
	}
	adjust(page)
	h.Pages.Show(v.w, v.r, status, page)
}

func (h *Handler) showOther(v visit, page *view) {
	h.Pages.ShowError(v.w, v.r, &ui.Message{
		Frame:   ui.Frame{Person: page.Person},
		Status:  http.StatusForbidden,
		Heading: "This invitation is for another account",
		Text: "It was sent to " + page.Email + ". You are signed in with another address and cannot accept it. " +
			"Nothing was changed.",
		Next:   "To accept it, sign in as " + page.Email + ".",
		Switch: page.Here,
		Links:  []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
	})
}

// key binds a form to the sign-in and the invitation that it was shown for.
func (h *Handler) key(v visit) string { return h.box.Seal([]byte(keyOf(v))) }

func keyOf(v visit) string {
	return v.current.SignInID.String() + " " + hex.EncodeToString(credential.Hash(v.token))
}

func (h *Handler) opensKey(v visit) bool {
	content, err := h.box.Open(v.form.Get("key"))
	return err == nil && string(content) == keyOf(v)
}

// form serves a POST from the server's own origin with the token of an open invitation.
func (h *Handler) form(serve func(visit) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		v, err := h.visit(w, r, form.Get("token"), form)
		if err != nil {
			h.fail(v, err)
			return
		}
		wait, limit := h.Attempts.Answered(r.Context(), credential.Secret(v.token), h.Proxies.ClientAddress(r))
		if wait > 0 {
			web.SetRateLimited(w.Header(), wait, limit)
			h.refuse(v, http.StatusTooManyRequests, "There were too many attempts to answer this "+
				"invitation. Nothing was changed. Please try again in a few minutes.", "", "")
			return
		}
		if err := serve(v); err != nil {
			h.fail(v, err)
		}
	}))
}

// Answer serves POST /invitation.
func (h *Handler) Answer() http.Handler {
	return h.form(func(v visit) error {
		decision := v.form.Get("decision")
		switch {
		case decision != "accept" && decision != "decline":
			h.show(v, http.StatusBadRequest, func(page *view) { page.Problem = "Accept or decline the invitation." })
			return nil
		case v.signedIn && !h.opensKey(v):
			h.show(v, http.StatusForbidden, func(page *view) {
				page.Problem = "This page was opened in another session. Nothing was changed. Please answer again."
			})
			return nil
		case decision == "decline":
			return h.decline(v)
		case !v.signedIn:
			redirect(v.w, "/login?return="+url.QueryEscape("/invitation?token="+url.QueryEscape(v.token))+
				"&"+ui.Unsent+"=1")
			return nil
		}
		event := v.current.Event(v.r.Context(), audit.MemberAdded, "")
		if err := h.Members.Accept(v.r.Context(), v.offer, v.current.User.ID, event); err != nil {
			return err
		}
		return h.welcome(v)
	})
}

func (h *Handler) decline(v visit) error {
	event := audit.Event{Actor: "anonymous", RequestID: web.RequestID(v.r.Context())}
	var err error
	if v.signedIn {
		event = v.current.Event(v.r.Context(), audit.InvitationDeclined, "")
		err = h.Members.Decline(v.r.Context(), v.offer, &v.current.User.ID, event)
	} else {
		err = h.Members.Decline(v.r.Context(), v.offer, nil, event)
	}
	if err == nil {
		h.Pages.ShowError(v.w, v.r, &ui.Message{
			Status:  http.StatusOK,
			Heading: "You declined the invitation",
			Text:    "You are not a member of " + v.offer.Workspace + ", and the link no longer works.",
		})
	}
	return err
}

func (h *Handler) welcome(v visit) error {
	if err := h.Sessions.Flash(v.w, v.r, "You are now a member of "+v.offer.Workspace+"."); err != nil {
		return err
	}
	redirect(v.w, "/settings/user")
	return nil
}

func redirect(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}

// arrive signs the new user in.
func (h *Handler) arrive(v visit, by session.SignIn, event audit.Event) error {
	if err := h.Sessions.Begin(v.w, v.r, by, event); err != nil {
		return err
	}
	h.Devices.Remember(v.w, v.r, v.offer.Email)
	return h.welcome(v)
}

func tooManyLinks() *ui.Message {
	return &ui.Message{
		Status:  http.StatusTooManyRequests,
		Heading: "Too many invalid links",
		Text:    "Too many invalid links to invitations were opened from your network.",
		Next:    "A valid link still works if you open it completely. Otherwise, please try again in a few minutes.",
	}
}

// showUsed leads a member whose invitation was accepted to the settings, and says to others that it is not valid.
func (h *Handler) showUsed(v visit) {
	m := &ui.Message{
		Status:  http.StatusNotFound,
		Heading: "This invitation is not valid",
		Text: "The link may be incomplete. Or the invitation was answered, withdrawn or sent again with a new " +
			"link, or it is older than 7 days.",
		Next: "If you have accepted it, sign in. Otherwise, ask the person who invited you for a new invitation.",
	}
	m.Links = []ui.Link{{Href: "/login?return=" + url.QueryEscape("/invitation?token="+url.QueryEscape(v.token)),
		Text: "Sign in"}}
	if v.signedIn {
		workspace, err := h.Members.Joined(v.r.Context(), credential.Secret(v.token), v.current.User.ID)
		if err == nil {
			err = h.Sessions.Flash(v.w, v.r, "You are already a member of "+workspace+".")
		}
		switch {
		case err == nil:
			redirect(v.w, "/settings/user")
			return
		case !errors.Is(err, membership.ErrNoInvitation):
			h.fail(v, err)
			return
		}
		m.Person = &ui.Person{Name: v.current.User.Name, Email: v.current.User.Email}
		m.Next = "Ask the person who invited you for a new invitation."
		m.Links = []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}}
	}
	h.Pages.ShowError(v.w, v.r, m)
}

// fail writes the response for an error.
func (h *Handler) fail(v visit, err error) {
	w, r := v.w, v.r
	switch {
	case errors.Is(err, membership.ErrNoInvitation):
		wait, limit := h.Attempts.UnknownLink(r.Context(), h.Proxies.ClientAddress(r))
		if wait > 0 {
			web.SetRateLimited(w.Header(), wait, limit)
			h.Pages.ShowError(w, r, tooManyLinks())
			return
		}
		h.showUsed(v)
	case errors.Is(err, membership.ErrOtherAddress):
		h.show(v, http.StatusForbidden, func(*view) {})
	case errors.Is(err, membership.ErrUnproven):
		h.Pages.ShowError(w, r, ui.Unproven("You cannot join another workspace before that. Nothing was changed.",
			h.Members.Mailed()))
	case errors.Is(err, membership.ErrInviter):
		h.Pages.ShowError(w, r, &ui.Message{
			Status:  http.StatusConflict,
			Heading: "This invitation can no longer be accepted",
			Text:    v.offer.Inviter + " may no longer give these permissions in " + v.offer.Workspace + ".",
			Next:    "Ask an administrator of the workspace for a new invitation.",
		})
	case errors.Is(err, membership.ErrMember):
		h.Pages.ShowError(w, r, &ui.Message{
			Status:  http.StatusConflict,
			Heading: "You are already a member of " + v.offer.Workspace,
			Text:    "The invitation changes nothing.",
			Links:   []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
		})
	case errors.Is(err, membership.ErrPasskeyExists):
		h.refusePasskey(v)
	case errors.Is(err, membership.ErrAccountExists):
		v.offer.HasAccount = true
		h.show(v, http.StatusConflict, func(page *view) {
			page.Problem = "There is an account with this address. Sign in to answer the invitation."
			if !v.offer.Mailed {
				page.Problem = "The account was not created. If you have one already, sign in to answer the invitation."
			}
		})
	case errors.Is(err, audit.ErrNotAuthorized):
		v.signedIn = false
		h.show(v, http.StatusForbidden, func(page *view) {
			page.Problem = "You were signed out. Nothing was changed."
		})
	default:
		h.Log.ErrorContext(r.Context(), "invitation failed", "error", err)
		if errors.Is(err, store.ErrUnavailable) {
			h.Pages.Unavailable(w, r)
			return
		}
		h.Pages.Internal(w, r)
	}
}
