package passkeys

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Deps are the dependencies of a Handler.
type Deps struct {
	Store        passkey.Store
	Auditor      session.Auditor
	RelyingParty *webauthn.RelyingParty
	Issuer       string // issuer of the deployment's OpenID Connect provider, or ""
	Ceremonies   *loginstate.States
	Sessions     *session.Sessions
	Attempts     *session.Attempts
	Pages        *ui.Pages
	Proxies      web.Proxies
	// Switcher returns the choice of the workspace in the header of a page, or nil.
	Switcher func(r *http.Request, user session.CurrentUser, section string) (*ui.Switcher, error)
	// Application returns the name of the application that sent the user to a local path, or "".
	Application func(ctx context.Context, path string) string
	Keys        seal.Keys
	Now         func() time.Time
	Log         *slog.Logger
}

// A Handler serves passkeys. It is safe for concurrent use.
type Handler struct {
	Deps
	box *seal.Box
}

// New returns a Handler. It derives the key of the forms from the master keys.
func New(deps Deps) (*Handler, error) {
	box, err := seal.NewBox(deps.Keys, "passkeys form")
	if err != nil {
		return nil, err
	}
	return &Handler{deps, box}, nil
}

const (
	home      = "/settings/user"
	pagePath  = "/settings/passkeys"
	againPath = "/login/again"
)

func again(next string) string { return againPath + "?return=" + url.QueryEscape(next) }

func signIn(next string) string { return "/login?return=" + url.QueryEscape(next) }

// sendChallenge stores a challenge and sends it to the script, unless the client address has begun too many attempts.
func (h *Handler) sendChallenge(
	w http.ResponseWriter,
	r *http.Request,
	purpose loginstate.Purpose,
	by loginstate.Binding,
	challenge webauthn.Challenge,
) {
	if wait := h.Attempts.Begun(r.Context(), h.Proxies.ClientAddress(r)); wait > 0 {
		web.SetRateLimited(w.Header(), wait, session.BegunLimit(wait))
		web.JSON(
			w,
			http.StatusTooManyRequests,
			refusal{Message: "Too many attempts from your network. Please try again in a few minutes."},
		)
		return
	}
	err := h.Ceremonies.Begin(r.Context(), purpose, by, challenge.Challenge, passkey.ChallengeLife, challenge.State)
	if err != nil {
		h.failScript(w, r, err)
		return
	}
	web.JSON(w, http.StatusOK, challenge.Options)
}

// take returns the stored state of a challenge (P1). false means that there is none.
func (h *Handler) take(
	ctx context.Context,
	purpose loginstate.Purpose,
	by loginstate.Binding,
	challenge string,
) (json.RawMessage, bool, error) {
	var stored json.RawMessage
	found, err := h.Ceremonies.Take(ctx, purpose, by, challenge, &stored)
	return stored, found, err
}

// A refusal is the message that the script shows, and the page that it opens next, if any.
type refusal struct {
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
}

func (h *Handler) failScript(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "passkey request failed", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		w.Header().Set("Retry-After", "5")
		web.JSON(
			w,
			http.StatusServiceUnavailable,
			refusal{Message: "The service is temporarily unavailable. Please try again in a few seconds."},
		)
		return
	}
	web.JSON(w, http.StatusInternalServerError, refusal{Message: "Something went wrong on our side. Please try again."})
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "passkey request failed", "error", err)
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
