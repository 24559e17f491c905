// Package signin serves the pages by which people sign in and authenticate again, their passkeys and their account at
// the deployment's OpenID Connect provider, and the links of mails and invitations. The forms take requests from the
// server's own origin only. The comment of a handler lists the fields of its form.
//
// The responses do not reveal whether an account exists. An unknown e-mail address, a wrong password and a disabled
// account get the same response after the same work. Nor do they reveal whether a credential exists: an unknown or
// stopped credential, a credential of a disabled user and a bad signature get the same response.
//
// A GET of a link changes nothing, because mail programs and previews open links in advance.
package signin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
)

// A Store is the database of the pages. Its errors are those of the domain, or wrap store.ErrUnavailable.
type Store interface {
	session.CodeStore
	passkey.Store

	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	AcceptWithPasskey(
		ctx context.Context, o membership.Offer, user membership.NewUser, key passkey.Passkey,
		added, joined audit.Event,
	) error
	SendAccessRequest(ctx context.Context, q membership.AccessRequest, event audit.Event) (membership.Outcome, error)
	QueueMail(ctx context.Context, m mail.Message) error
	Record(ctx context.Context, e audit.Event) error

	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)

	ResetLink(ctx context.Context, tokenHash []byte) (password.Link, error)
	// ResetPassword returns the grants that it ended.
	ResetPassword(ctx context.Context, r password.Reset, event audit.Event) ([]useraccount.EndedGrant, error)
	// ActiveTokens and ConnectedApps return what a new password may end.
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)

	// UserByIdentity returns the user who is linked to an account at the OpenID Connect provider.
	UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error)
	// LinkIdentity links an account at the provider to the user with the address, which the provider has verified. If
	// the address was not proven before, it ends what the account had, or returns useraccount.ErrTakeover if confirmed
	// is false.
	LinkIdentity(
		ctx context.Context, user uuid.UUID, email, issuer, subject string, confirmed bool, event audit.Event,
	) (bool, *useraccount.Takeover, error)
	// IdentitySince returns when the user was linked to an account of an issuer. false means that the user is not
	// linked.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	// UnlinkIdentity removes a link, unless the user needs it to sign in. passkeys reports whether the deployment
	// offers passkeys.
	UnlinkIdentity(
		ctx context.Context, user uuid.UUID, issuer string, passkeys bool, event audit.Event,
	) (unlinked, needed bool, err error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Store        Store
	Accounts     *useraccount.Service
	Members      *membership.Service
	Offers       *membership.AccessOffers
	RelyingParty *passkey.RelyingParty // nil if the deployment offers no passkeys
	Provider     *oidc.Provider        // nil if the deployment has no OpenID Connect provider
	ProviderName string                // as users read it
	Passwords    *session.Passwords
	Attempts     *session.Attempts
	Sessions     *session.Sessions
	Pages        *ui.Pages
	Proxies      web.Proxies
	// Place returns the workspace in the navigation of a page of Settings, Security, or nil.
	Place func(r *http.Request, user session.CurrentUser) (*ui.Place, error)
	// Application returns the name of the application that sent the user to a local path, or "".
	Application func(ctx context.Context, path string) string
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)

	Keys   seal.Keys
	Now    func() time.Time
	Random io.Reader
	Log    *slog.Logger
}

// A Handler serves the pages. It is safe for concurrent use.
type Handler struct {
	Deps
	issuer string // of the deployment's OpenID Connect provider, or ""
	// of the forms: checked passwords that wait for a code, and the keys of three pages
	tickets, passkeyForms, providerForms, invitations *seal.Box
}

// New returns a Handler. It derives the keys of the forms from the master keys.
func New(deps Deps) (*Handler, error) {
	h := &Handler{Deps: deps}
	if deps.Provider != nil {
		h.issuer = deps.Provider.Issuer()
	}
	var errs [4]error
	h.tickets, errs[0] = seal.NewBox(deps.Keys, "sign-in ticket")
	h.passkeyForms, errs[1] = seal.NewBox(deps.Keys, "passkeys form")
	h.providerForms, errs[2] = seal.NewBox(deps.Keys, "upstream form")
	h.invitations, errs[3] = seal.NewBox(deps.Keys, "invitation form")
	return h, errors.Join(errs[:]...)
}

// Routes are handlers by path and method.
type Routes = map[string]map[string]http.Handler

// Routes returns the handlers of the pages. A method of sign-in that the deployment does not offer has no routes.
func (h *Handler) Routes() Routes {
	routes := Routes{
		"/login":      {"GET": h.page(signIn, h.showSignIn), "POST": h.form(signIn, h.signIn)},
		"/login/code": {"POST": h.form(signIn, h.code)},
		"/logout":     {"POST": h.form(signIn, h.signOut)},
		"/login/again": {
			"GET":  h.page(reauth, h.forUser("", h.showReauth)),
			"POST": h.form(reauth, h.forUser("", h.confirm)),
		},
		"/invitation":         {"GET": h.page(invitation, h.showInvitation), "POST": h.invitationForm(h.answer)},
		"/invitation/account": {"POST": h.invitationForm(h.createAccount)},
		"/access-requests":    {"POST": h.form(accessRequest, h.askForAccess)},
		mail.ResetPath:        {"GET": h.page(reset, h.showReset), "POST": h.form(reset, h.resetPassword)},
	}
	if h.RelyingParty != nil {
		maps.Copy(routes, h.passkeyRoutes())
	}
	if h.Provider != nil {
		maps.Copy(routes, h.providerRoutes())
	}
	for _, byMethod := range routes {
		for method, handler := range byMethod {
			byMethod[method] = h.Sessions.Load(handler)
		}
	}
	routes["/login"]["GET"] = web.CompressPublic(routes["/login"]["GET"])
	// These read no session: the pages are the same for every browser.
	maps.Copy(routes, Routes{
		"/login/forgotten": {
			"GET":  web.CompressPublic(h.page(reset, h.showForgotten)),
			"POST": h.form(reset, h.requestReset),
		},
		mail.EmailChangePath: {
			"GET":  h.page(emailChange, h.showEmailChange),
			"POST": h.form(emailChange, h.answerEmailChange),
		},
	})
	return routes
}

// What a request is about: the log names it.
const (
	signIn        = "sign-in"
	reauth        = "reauthentication"
	passkeys      = "passkey request"
	upstream      = "upstream sign-in"
	reset         = "password reset"
	emailChange   = "change of address"
	invitation    = "invitation"
	accessRequest = "access request"
)

// home is where a sign-in without a return path leads.
const home = "/settings/user"

// A visit is one request to a page.
type visit struct {
	w      http.ResponseWriter
	r      *http.Request
	about  string     // one of the constants above, such as signIn
	form   url.Values // of a GET, the query
	script bool       // a page's script sent it, and the response is JSON

	current session.CurrentUser // set by forUser
	next    string              // set by forUser: the local path that follows a sign-in or reauthentication

	token    string           // of an invitation: readInvitation sets it, offer, signedIn and current
	offer    membership.Offer // of an invitation
	signedIn bool             // there is a current user
}

// page serves a GET.
func (h *Handler) page(about string, serve func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{w: w, r: r, about: about, form: r.URL.Query()}
		h.finish(v, serve(v))
	})
}

// form serves a POST of a form from the server's own origin. A form of the sign-in that is not valid leads to the
// sign-in page.
func (h *Handler) form(about string, serve func(*visit) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{w: w, r: r, about: about}
		var ok bool
		if about == signIn {
			v.form, ok = h.Pages.ReadFormOr(w, r, func() {
				page := signInPage("", "")
				page.Problem = "The form is not valid. Please try again."
				h.Pages.Show(w, r, http.StatusBadRequest, page)
			})
		} else {
			v.form, ok = h.Pages.ReadForm(w, r)
		}
		if ok {
			h.finish(v, serve(v))
		}
	}))
}

// script serves a POST without a form, from a script of the server's own origin.
func (h *Handler) script(about string, serve func(*visit) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{w: w, r: r, about: about, script: true}
		h.finish(v, serve(v))
	}))
}

// forUser calls serve for a signed-in user. It sends other browsers to the sign-in page, and from there to next, or to
// the form's return path if next is "".
func (h *Handler) forUser(next string, serve func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		var signedIn bool
		var err error
		v.current, signedIn, err = h.Sessions.CurrentUser(v.r.Context())
		v.next = cmp.Or(next, ui.LocalPath(v.form.Get("return"), home))
		if err == nil && !signedIn {
			err = audit.ErrNotAuthorized
		}
		if err != nil {
			return err
		}
		return serve(v)
	}
}

// finish writes the response for an error.
func (h *Handler) finish(v *visit, err error) {
	signedOut := errors.Is(err, audit.ErrNotAuthorized) // maybe since the request began
	// ErrSecondFactor: a second factor was added at another browser during the request.
	unconfirmed := errors.Is(err, errReauthenticate) || errors.Is(err, session.ErrSecondFactor)
	switch {
	case err == nil:
	case v.next != "" && signedOut:
		v.leadTo(signInPath(v.next))
	case v.next != "" && unconfirmed:
		v.leadTo(reauthPath(v.next))
	case errors.Is(err, password.ErrLinkInvalid):
		_ = h.tell(v, "reset_link_invalid")
	case errors.Is(err, useraccount.ErrLinkInvalid):
		_ = h.tell(v, "email_link_invalid")
	case errors.Is(err, useraccount.ErrEmailTaken):
		_ = h.tell(v, "email_taken")
	default:
		h.fail(v, err)
	}
}

// fail writes a 503 or 500.
func (h *Handler) fail(v *visit, err error) {
	h.Log.ErrorContext(v.r.Context(), v.about+" failed", "error", err)
	unavailable := errors.Is(err, store.ErrUnavailable)
	switch {
	case v.script && unavailable:
		v.w.Header().Set("Retry-After", "5")
		_ = v.refuse(http.StatusServiceUnavailable,
			"The service is temporarily unavailable. Please try again in a few seconds.")
	case v.script:
		_ = v.refuse(http.StatusInternalServerError, "Something went wrong on our side. Please try again.")
	case unavailable:
		h.Pages.Unavailable(v.w, v.r, ui.Frame{})
	default:
		h.Pages.Internal(v.w, v.r)
	}
}

func signInPath(next string) string { return "/login?return=" + url.QueryEscape(next) }

func reauthPath(next string) string { return "/login/again?return=" + url.QueryEscape(next) }

// leadTo makes the browser open a page on which the user must authenticate first.
func (v *visit) leadTo(path string) {
	if v.script {
		web.JSON(v.w, http.StatusForbidden, refusal{Message: "Confirm your identity first.", Next: path})
		return
	}
	ui.Redirect(v.w, path)
}

// A refusal is the message that the script shows, and the page that it opens next, if any.
type refusal struct {
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
}

// refuse sends the script a message.
func (v *visit) refuse(status int, message string) error {
	web.JSON(v.w, status, refusal{Message: message})
	return nil
}

func (v *visit) redirect(path string) error {
	ui.Redirect(v.w, path)
	return nil
}

func (h *Handler) show(v *visit, status int, page ui.View) error {
	h.Pages.Show(v.w, v.r, status, page)
	return nil
}

//go:embed messages.json
var messagesJSON []byte

// messages are pages that say what happened, and what to do next, if anything, by name.
var messages = sync.OnceValue(func() (all map[string]ui.Message) {
	if err := json.Unmarshal(messagesJSON, &all); err != nil {
		panic("messages.json: " + err.Error())
	}
	return all
})

// message returns the message with the name. replacements are pairs of a placeholder and its text, as
// strings.NewReplacer takes them.
func (h *Handler) message(v *visit, name string, replacements ...string) *ui.Message {
	m := messages()[name]
	fill := strings.NewReplacer(append(replacements, "{provider}", h.ProviderName, "{workspace}",
		brand.Apart(v.offer.Workspace, brand.Unnamed), "{inviter}", brand.Apart(v.offer.Inviter, brand.Unnamed),
		"{email}", v.offer.Email)...)
	m.Heading, m.Text, m.Next = fill.Replace(m.Heading), fill.Replace(m.Text), fill.Replace(m.Next)
	m.Links = slices.Clone(m.Links)
	return &m
}

// tell shows the message with the name, and the links in place of its own, if there are any.
func (h *Handler) tell(v *visit, name string, links ...ui.Link) error {
	m := h.message(v, name)
	if len(links) > 0 {
		m.Links = links
	}
	return h.showMessage(v, m)
}

func (h *Handler) showMessage(v *visit, m *ui.Message) error {
	h.Pages.ShowError(v.w, v.r, m)
	return nil
}

// limited reports whether the client is beyond a limit and must wait, and sets the headers of the response.
func (v *visit) limited(limit web.RateLimit) bool {
	if limit.Reset > 0 {
		web.SetRateLimited(v.w.Header(), limit.Reset, limit)
	}
	return limit.Reset > 0
}

// done redirects to a page that shows notice.
func (h *Handler) done(v *visit, path, notice string) error {
	if err := h.Sessions.Flash(v.w, v.r, notice); err != nil {
		return err
	}
	return v.redirect(path)
}

// address returns the address of the client.
func (h *Handler) address(v *visit) netip.Addr { return h.Proxies.ClientAddress(v.r) }

// event returns the event of a request without a sign-in, with the client's address in its detail.
func (h *Handler) event(v *visit, action audit.Action, subject string, detail map[string]any) audit.Event {
	event := audit.Anonymous(action, subject, web.RequestID(v.r.Context()), h.address(v).String())
	maps.Copy(event.Detail, detail)
	return event
}

// ownEvent returns the event of something that the current user did, with the client's address in its detail.
func (h *Handler) ownEvent(v *visit, action audit.Action, subject string, detail map[string]any) audit.Event {
	event := v.current.Event(v.r.Context(), action, subject)
	detail["address"] = h.address(v).String()
	event.Detail = detail
	return event
}

func person(user workspace.User) *ui.Person { return &ui.Person{Name: user.Name, Email: user.Email} }
