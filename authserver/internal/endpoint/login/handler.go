package login

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"
)

// Deps are the dependencies of a Handler.
type Deps struct {
	Users     session.Users
	Passwords *session.Passwords
	Devices   *session.Devices
	Attempts  *session.Attempts
	Sessions  *session.Sessions
	Browsers  *loginstate.States
	Auditor   session.Auditor
	Codes     session.CodeStore
	Pages     *ui.Pages
	Proxies   web.Proxies
	// Application returns the name of the application that sent the user to a local path, or "".
	Application func(ctx context.Context, path string) string
	Keys        seal.Keys
	Now         func() time.Time
	Log         *slog.Logger
}

// A Handler serves sign-in and sign-out. It is safe for concurrent use.
type Handler struct {
	Deps
	verifier session.Verifier
	tickets  *seal.Box
}

// New returns a Handler. It derives the key of the forms for codes from the master keys.
func New(deps Deps) (*Handler, error) {
	tickets, err := seal.NewBox(deps.Keys, "sign-in ticket")
	if err != nil {
		return nil, err
	}
	verifier := session.Verifier{
		Users:     deps.Users,
		Passwords: deps.Passwords,
		Attempts:  deps.Attempts,
		Auditor:   deps.Auditor,
	}
	return &Handler{deps, verifier, tickets}, nil
}

// home is where a sign-in without a return path leads.
const home = "/settings/user"

const maxForm = 64 << 10

// Page serves GET /login.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	next := ui.LocalPath(r.URL.Query().Get("return"), "")
	_, signedIn, err := h.Sessions.CurrentUser(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if signedIn {
		goOn(w, ui.LocalPath(next, home))
		return
	}
	h.show(w, r, http.StatusOK, form(next, ""))
}

// SignIn serves POST /login. It accepts requests from the server's own origin only.
func (h *Handler) SignIn() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.signIn)) }

// SignOut serves POST /logout. It accepts requests from the server's own origin only.
func (h *Handler) SignOut() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.signOut)) }

func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	if !h.readForm(w, r) {
		return
	}
	email := spelling.Pasted(r.PostForm.Get("email"))
	password := credential.Secret(r.PostForm.Get("password"))
	page := form(ui.LocalPath(r.PostForm.Get("return"), ""), r.PostForm.Get("email"))
	if !workspace.PlausibleEmail(email) {
		page.EmailNote = "Enter the e-mail address of your account."
	}
	if password == "" {
		page.PasswordGap = "Enter your password."
	}
	if _, known := h.Browsers.BoundToBrowser(r); !known && r.PostForm.Has(ui.ExpectsCookie) {
		page.Problem = ui.NoCookie
	}
	if page.EmailNote != "" || page.PasswordGap != "" || page.Problem != "" {
		h.show(w, r, http.StatusBadRequest, page)
		return
	}
	user, result, err := h.verifier.Verify(
		r.Context(),
		email,
		password,
		h.Proxies.ClientAddress(r),
		h.Devices.Knows(r, email),
	)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(w.Header(), session.BusyFor)
		page.Problem = "Too many people are signing in right now. Please try again in a few seconds."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page) // without the application's name, which costs a read
	case err != nil:
		h.fail(w, r, err)
	case result.Wait > 0:
		h.tooMany(w, r, page, result)
	case !result.OK:
		h.wrong(w, r, page)
	default:
		h.begin(w, r, user, result.Proof, page)
	}
}

func (h *Handler) begin(
	w http.ResponseWriter,
	r *http.Request,
	user workspace.User,
	proof session.Proof,
	page *ui.Login,
) {
	by, event := session.Arrival(r, user, proof, h.Proxies.ClientAddress(r))
	err := h.Sessions.Begin(w, r, by, event)
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		h.wrong(w, r, page)
	case errors.Is(err, session.ErrCodeNeeded):
		h.askCode(w, r, user, proof, page.Return)
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, ui.LocalPath(page.Return, home))
	}
}

func (h *Handler) wrong(w http.ResponseWriter, r *http.Request, page *ui.Login) {
	page.Problem = "The e-mail address or password is incorrect."
	h.show(w, r, http.StatusBadRequest, page)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if !h.readForm(w, r) {
		return
	}
	if err := h.Sessions.End(w, r); err != nil {
		h.fail(w, r, err)
		return
	}
	goOn(w, ui.LocalPath(r.PostForm.Get("return"), "/login"))
}

// readForm reads a body in which each field occurs at most once. It returns false if it has refused the form and
// written the response.
func (h *Handler) readForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		h.Pages.TooLarge(w, r)
		return false
	}
	for _, values := range r.PostForm {
		if len(values) > 1 {
			err = errors.New("a field occurs twice")
		}
	}
	if err != nil {
		page := form("", "")
		page.Problem = "The form is not valid. Please try again."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return false
	}
	return true
}

func (h *Handler) tooMany(w http.ResponseWriter, r *http.Request, page *ui.Login, result session.Result) {
	web.SetRateLimited(w.Header(), result.Wait, result.Limit)
	page.Problem = "Too many wrong passwords from your network. Please try again in " + ui.Wait(result.Wait) + "."
	h.Pages.Show(
		w,
		r,
		http.StatusTooManyRequests,
		page,
	) // without the application's name: a limited client must not cause a read
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "sign-in failed", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		h.Pages.Unavailable(w, r)
		return
	}
	h.Pages.Internal(w, r)
}

// show shows the form, with the name of the application that the user signs in for.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, status int, page *ui.Login) {
	page.Application = h.Application(r.Context(), page.Return)
	h.Pages.Show(w, r, status, page)
}

func form(next, email string) *ui.Login {
	return &ui.Login{Frame: ui.Frame{Title: "Sign in"}, Return: next, Email: email}
}

func goOn(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
