// Package reauth serves the page on which a signed-in user authenticates again.
//
//	GET  /login/again  Page     the form with the methods that this user has; ?return= is the local path that follows
//	POST /login/again  Confirm  password, return: 303 on success, else the form again (400, 429, 503)
//
// Endpoints that create credentials need an authentication within the last ten minutes (session.CurrentUser.Fresh).
// Passkeys and the OpenID Connect provider are served at /login/again/passkey (endpoint/passkeys) and
// /login/again/upstream (endpoint/oidclogin).
package reauth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// Methods reads the authentication methods of a user.
type Methods interface {
	session.Users
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
	HasIdentity(ctx context.Context, user uuid.UUID, issuer string) (bool, error)
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Methods   Methods
	Passkeys  bool   // the deployment offers passkeys
	Issuer    string // issuer of the deployment's OpenID Connect provider, or ""
	Passwords *session.Passwords
	Attempts  *session.Attempts
	Sessions  *session.Sessions
	Devices   *session.Devices
	Auditor   session.Auditor
	Codes     session.CodeStore
	Pages     *ui.Pages
	Proxies   web.Proxies
	Log       *slog.Logger
}

// A Handler serves reauthentication. It is safe for concurrent use.
type Handler struct {
	Deps
	verifier session.Verifier
}

// New returns a Handler.
func New(deps Deps) *Handler {
	return &Handler{deps, session.Verifier{
		Users:     deps.Methods,
		Passwords: deps.Passwords,
		Attempts:  deps.Attempts,
		Auditor:   deps.Auditor,
	}}
}

const home = "/settings/user"

// Page serves GET /login/again.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	next := ui.LocalPath(r.URL.Query().Get("return"), home)
	current, signedIn := h.currentUser(w, r, next)
	if !signedIn {
		return
	}
	page, err := h.question(r.Context(), current, next)
	if err == nil {
		page.Problem, err = h.Sessions.TakeFlash(w, r) // the message of a method that failed
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.Pages.Show(w, r, http.StatusOK, page)
}

// Confirm serves POST /login/again. It accepts requests from the server's own origin only.
func (h *Handler) Confirm() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.confirm)) }

func (h *Handler) confirm(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	next := ui.LocalPath(form.Get("return"), home)
	current, signedIn := h.currentUser(w, r, next)
	if !signedIn {
		return
	}
	page, err := h.question(r.Context(), current, next)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	password := credential.Secret(form.Get("password"))
	if password == "" {
		page.PasswordGap = "Enter your password."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return
	}
	code := credential.Secret(form.Get("code"))
	if page.NeedsCode && code == "" {
		page.CodeNote = "Enter the code that your app shows, or a recovery code."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return
	}
	from := h.Proxies.ClientAddress(r)
	user, result, err := h.verifier.Verify(r.Context(), current.User.Email, password, from, true)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(w.Header(), session.BusyFor)
		page.Problem = "Too many people are signing in right now. Please try again in a few seconds."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
	case err != nil:
		h.fail(w, r, err)
	case result.Wait > 0:
		web.SetRateLimited(w.Header(), result.Wait, result.Limit)
		page.Problem = "Too many wrong passwords from your network. Please try again in " + ui.Wait(result.Wait) + "."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
	case !result.OK || user.ID != current.User.ID:
		page.PasswordGap = "The password is incorrect."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	default:
		result.Proof.Code = code
		h.withPassword(w, r, current, result.Proof, page)
	}
}

// withPassword continues after the right password: it counts the code as a try.
func (h *Handler) withPassword(
	w http.ResponseWriter,
	r *http.Request,
	current session.CurrentUser,
	proof session.Proof,
	page *ui.Reauth,
) {
	try := session.CodeTry{
		User:     current.User.ID,
		Password: session.PasswordDigest(proof.PasswordHash),
		Known:    h.Devices.Knows(r, current.User.Email),
		Address:  h.Proxies.ClientAddress(r),
		Device:   session.DeviceName(r.UserAgent()),
	}
	if page.NeedsCode {
		if wait, limit := h.Attempts.Code(r.Context(), try); wait > 0 {
			web.SetRateLimited(w.Header(), wait, limit)
			page.CodeNote = "Too many codes were tried for your account. Please try again in " + ui.Wait(wait) + "."
			h.Pages.Show(w, r, http.StatusTooManyRequests, page)
			return
		}
	}
	h.reauthenticated(w, r, current, proof, try, page)
}

func (h *Handler) reauthenticated(
	w http.ResponseWriter,
	r *http.Request,
	current session.CurrentUser,
	proof session.Proof,
	try session.CodeTry,
	page *ui.Reauth,
) {
	event := current.Event(r.Context(), audit.SignInProved, "sign_in:"+current.SignInID.String())
	event.Detail = map[string]any{"method": session.Password, "address": try.Address.String()}
	err := h.Sessions.Reauthenticated(w, r, current, proof, event)
	wrongCode := errors.Is(err, session.ErrCodeInvalid)
	if wrongCode {
		err = h.Attempts.WrongCode(r.Context(), h.Codes, try)
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		page.PasswordGap = "The password is incorrect."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	case wrongCode && err == nil, errors.Is(err, session.ErrCodeNeeded):
		page.NeedsCode, page.CodeNote = true, "The code is incorrect or was used already. Wait for the next one."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	case errors.Is(err, audit.ErrNotAuthorized): // signed out since the request began
		goOn(w, "/login?return="+url.QueryEscape(page.Return))
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, page.Return)
	}
}

// currentUser returns the user who is signed in. If there is none, it redirects to the sign-in page.
func (h *Handler) currentUser(w http.ResponseWriter, r *http.Request, next string) (session.CurrentUser, bool) {
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !signedIn:
		goOn(w, "/login?return="+url.QueryEscape(next))
	}
	return current, err == nil && signedIn
}

// question returns the page with the methods that the user has.
func (h *Handler) question(ctx context.Context, current session.CurrentUser, next string) (*ui.Reauth, error) {
	page := &ui.Reauth{Return: next}
	page.Title, page.AsksPasskey = "Confirm your identity", h.Passkeys
	page.Person = &ui.Person{Name: current.User.Name, Email: current.User.Email}
	_, hash, _, err := h.Methods.UserByID(ctx, current.User.ID)
	page.HasPassword = hash != ""
	if err == nil && page.HasPassword {
		var status authenticator.Status
		status, err = h.Methods.Authenticator(ctx, current.User.ID)
		page.NeedsCode = status.Active
	}
	if err == nil && current.SecondFactor.MustConfirm() && !page.NeedsCode {
		page.HasPassword, page.SecondFactor = false, true // the password alone is not enough
	}
	if err == nil && h.Passkeys {
		page.HasPasskey, err = h.Methods.HasPasskey(ctx, current.User.ID)
	}
	if err == nil && h.Issuer != "" && !current.SecondFactor.MustConfirm() {
		page.Linked, err = h.Methods.HasIdentity(ctx, current.User.ID, h.Issuer)
	}
	return page, err
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "reauthentication failed", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		h.Pages.Unavailable(w, r)
		return
	}
	h.Pages.Internal(w, r)
}

func goOn(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
