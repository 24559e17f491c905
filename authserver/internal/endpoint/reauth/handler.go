// Package reauth answers: is the person at this browser still the one who signed in?
//
//	GET  /login/again  Page     the question, in every way that this user can answer; ?return= is a local path to go on to
//	POST /login/again  Confirm  password, return: 303 on success, else the question again (400, 429, 503)
//
// Whatever makes credentials wants an answer from the last ten minutes (session.Visitor.Fresh). Passkeys and the
// upstream provider answer at /login/again/passkey and /login/again/upstream (endpoint/passkeys, endpoint/upstream).
package reauth

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// Methods know in which ways a user can answer.
type Methods interface {
	session.Users
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	// HasPasskey says whether one of the user's passkeys is good.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
	HasIdentity(ctx context.Context, user uuid.UUID, issuer string) (bool, error)
}

// Deps are what a Handler needs.
type Deps struct {
	Methods   Methods
	Passkeys  bool   // the deployment offers them
	Issuer    string // of the deployment's upstream provider, or ""
	Passwords *session.Passwords
	Attempts  *session.Attempts
	Sessions  *session.Sessions
	Auditor   session.Auditor
	Pages     *ui.Pages
	Proxies   web.Proxies
	Log       *slog.Logger
}

// A Handler asks again. It is safe for concurrent use.
type Handler struct {
	Deps
	verifier session.Verifier
}

// New makes a Handler.
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
	visitor, signedIn := h.visitor(w, r, next)
	if !signedIn {
		return
	}
	page, err := h.question(r.Context(), visitor, next)
	if err == nil {
		page.Problem, err = h.Sessions.TakeFlash(w, r) // what a way that was tried has left
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.Pages.Show(w, r, http.StatusOK, page)
}

// Confirm serves POST /login/again, from this origin alone.
func (h *Handler) Confirm() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.confirm)) }

func (h *Handler) confirm(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	next := ui.LocalPath(form.Get("return"), home)
	visitor, signedIn := h.visitor(w, r, next)
	if !signedIn {
		return
	}
	page, err := h.question(r.Context(), visitor, next)
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
	from := h.Proxies.ClientAddress(r)
	user, verdict, err := h.verifier.Verify(r.Context(), visitor.User.Email, password, from, true)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(w.Header(), session.BusyFor)
		page.Problem = "Many people are signing in at this moment. Please try again in a few seconds."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
	case err != nil:
		h.fail(w, r, err)
	case verdict.Wait > 0:
		web.SetRateLimited(w.Header(), verdict.Wait, verdict.Limit)
		page.Problem = "Too many wrong passwords from your network. Please try again in " + minutes(verdict.Wait) + "."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
	case !verdict.OK || user.ID != visitor.User.ID:
		page.PasswordGap = "The password is not right."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	default:
		h.proved(w, r, visitor, verdict.Proof, page)
	}
}

func (h *Handler) proved(
	w http.ResponseWriter,
	r *http.Request,
	visitor session.CurrentUser,
	proof session.Proof,
	page *ui.Again,
) {
	event := visitor.Event(r.Context(), "sign_in.proved", "sign_in:"+visitor.SignInID.String())
	event.Detail = map[string]any{"method": session.Password, "address": h.Proxies.ClientAddress(r).String()}
	err := h.Sessions.Reauthenticated(w, r, visitor, proof, event)
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		page.PasswordGap = "The password is not right."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	case errors.Is(err, audit.ErrNotAuthorized): // signed out meanwhile
		goOn(w, "/login?return="+url.QueryEscape(page.Return))
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, page.Return)
	}
}

// visitor is who is signed in. It answers itself where nobody is.
func (h *Handler) visitor(w http.ResponseWriter, r *http.Request, next string) (session.CurrentUser, bool) {
	visitor, signedIn, err := h.Sessions.CurrentUser(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !signedIn:
		goOn(w, "/login?return="+url.QueryEscape(next))
	}
	return visitor, err == nil && signedIn
}

// question is the page with the ways that are open to the visitor.
func (h *Handler) question(ctx context.Context, visitor session.CurrentUser, next string) (*ui.Again, error) {
	page := &ui.Again{Return: next}
	page.Title, page.AsksPasskey = "Confirm that it is you", h.Passkeys
	page.Person = &ui.Person{Name: visitor.User.Name, Email: visitor.User.Email}
	_, hash, _, err := h.Methods.UserByID(ctx, visitor.User.ID)
	page.HasPassword = hash != ""
	if err == nil && h.Passkeys {
		page.HasPasskey, err = h.Methods.HasPasskey(ctx, visitor.User.ID)
	}
	if err == nil && h.Issuer != "" {
		page.Linked, err = h.Methods.HasIdentity(ctx, visitor.User.ID, h.Issuer)
	}
	return page, err
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "new proof", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		h.Pages.Unavailable(w, r)
		return
	}
	h.Pages.Internal(w, r)
}

func minutes(wait time.Duration) string {
	if n := int(math.Ceil(wait.Minutes())); n > 1 {
		return strconv.Itoa(n) + " minutes"
	}
	return "a minute"
}

func goOn(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
