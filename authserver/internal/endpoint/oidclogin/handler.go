package oidclogin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Identities stores the links between users and their accounts at the provider. Its errors wrap store.ErrUnavailable.
type Identities interface {
	session.Users
	session.Auditor
	UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error)
	// LinkIdentity links an account to the user with the address, which the provider has verified. If the address was
	// not proven before, it ends what the account had, or returns useraccount.ErrTakeover if confirmed is false.
	LinkIdentity(
		ctx context.Context, user uuid.UUID, email, issuer, subject string, confirmed bool, event audit.Event,
	) (bool, *useraccount.Takeover, error)
	// IdentitySince returns when the user was linked to an account of an issuer. false means that the user is not
	// linked.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	// UnlinkIdentity removes a link, unless the user needs it to sign in. passkeys reports whether the deployment
	// offers passkeys.
	UnlinkIdentity(
		ctx context.Context,
		user uuid.UUID,
		issuer string,
		passkeys bool,
		event audit.Event,
	) (unlinked, needed bool, err error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Identities Identities
	Provider   *oidc.Provider
	Name       string // display name of the provider
	Ceremonies *loginstate.States
	Sessions   *session.Sessions
	Attempts   *session.Attempts
	Pages      *ui.Pages
	Proxies    web.Proxies
	// Switcher returns the choice of the workspace in the header of a page, or nil.
	Switcher func(r *http.Request, user session.CurrentUser, section string) (*ui.Switcher, error)
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time)

	Passkeys bool // the deployment offers passkeys
	Keys     seal.Keys
	Now      func() time.Time
	Log      *slog.Logger
}

// A Handler serves sign-in at the provider. It is safe for concurrent use.
type Handler struct {
	Deps
	box *seal.Box
}

// New returns a Handler. It derives the key of the form from the master keys.
func New(deps Deps) (*Handler, error) {
	box, err := seal.NewBox(deps.Keys, "upstream form")
	if err != nil {
		return nil, err
	}
	return &Handler{deps, box}, nil
}

const (
	home        = "/settings/user"
	attemptLife = 10 * time.Minute
)

// begun is the stored state of an attempt.
type begun struct {
	Attempt oidc.Attempt
	Return  string
	SignIn  uuid.UUID // the sign-in to reauthenticate, or uuid.Nil for a new sign-in
}

// Start serves GET /login/upstream.
func (h *Handler) Start(w http.ResponseWriter, r *http.Request) {
	next := ui.LocalPath(r.URL.Query().Get("return"), home)
	_, signedIn, err := h.Sessions.CurrentUser(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case signedIn:
		goOn(w, next)
	default:
		h.send(w, r, begun{Attempt: h.Provider.NewAttempt(false), Return: next})
	}
}

// Again serves GET /login/again/upstream.
func (h *Handler) Again(w http.ResponseWriter, r *http.Request) {
	next := ui.LocalPath(r.URL.Query().Get("return"), home)
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !signedIn:
		goOn(w, "/login?return="+url.QueryEscape(next))
	default:
		h.send(w, r, begun{Attempt: h.Provider.NewAttempt(true), Return: next, SignIn: current.SignInID})
	}
}

// send redirects the browser to the provider.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, b begun) {
	if r.Method != http.MethodGet { // a HEAD would begin an attempt that is never finished
		h.getOnly(w, r)
		return
	}
	if wait := h.Attempts.Begun(r.Context(), h.Proxies.ClientAddress(r)); wait > 0 {
		h.tooMany(w, r, b, wait)
		return
	}
	address, err := h.Provider.Address(r.Context(), b.Attempt)
	if err == nil {
		err = h.Ceremonies.Begin(
			r.Context(),
			loginstate.OIDCSignIn,
			h.Ceremonies.BindToBrowser(w, r),
			b.Attempt.State,
			attemptLife,
			b,
		)
	}
	if err != nil {
		h.failAttempt(w, r, b, err)
		return
	}
	goOn(w, address)
}

// getOnly refuses HEAD, which the router accepts wherever it accepts GET.
func (h *Handler) getOnly(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	h.Pages.NotAllowed(w, r)
}

// failAttempt is fail. If the provider does not respond, it has a link back to the page that the user came from.
func (h *Handler) failAttempt(w http.ResponseWriter, r *http.Request, b begun, err error) {
	if !errors.Is(err, oidc.ErrUnreachable) {
		h.fail(w, r, err)
		return
	}
	h.Log.ErrorContext(r.Context(), "identity provider does not respond", "error", err)
	h.unreachable(w, r, b)
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "upstream sign-in failed", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		h.Pages.Unavailable(w, r)
		return
	}
	h.Pages.Internal(w, r)
}

func goOn(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
