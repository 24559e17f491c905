package signin

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

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
		read := h.Pages.ReadForm
		if about == signIn {
			read = h.readSignIn
		}
		var ok bool
		if v.form, ok = read(w, r); ok {
			h.finish(v, serve(v))
		}
	}))
}

func (h *Handler) readSignIn(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	return h.Pages.ReadFormOr(w, r, func() {
		page := signInPage("", "")
		page.Problem = "The form is not valid. Please try again."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
	})
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

// keyed calls serve if the form's key, which box opens, was made for the sign-in of the request. It is used in forUser.
func (h *Handler) keyed(box *seal.Box, serve func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		content, err := box.Open(v.form.Get("key"))
		if err != nil || string(content) != string(v.current.SignInID[:]) {
			return h.tell(v, message(http.StatusForbidden, "This form is out of date",
				"It was opened in another session, for example before you signed in again. Nothing was changed.", "",
				ui.Link{Href: v.next, Text: "Open the page again"}))
		}
		return serve(v)
	}
}

// formKey binds a form to the sign-in that it is shown to.
func formKey(box *seal.Box, v *visit) string { return box.Seal(v.current.SignInID[:]) }

// errReauthenticate means that the request needs a recent authentication.
var errReauthenticate = errors.New("the last authentication is not recent enough")

// fresh calls serve if the user may change sign-in methods now, and otherwise returns errReauthenticate. It is used in
// forUser.
func (h *Handler) fresh(serve func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		if !v.current.MayChangeFactors(h.Now()) {
			return errReauthenticate
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
		h.Pages.Unavailable(v.w, v.r)
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

// message returns a page that says what happened, and what to do next, if anything.
func message(status int, heading, text, next string, links ...ui.Link) *ui.Message {
	return &ui.Message{
		Status:  status,
		Heading: heading,
		Text:    text,
		Next:    next,
		Links:   links,
	}
}

// tell shows a message.
func (h *Handler) tell(v *visit, m *ui.Message) error {
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

// issuer returns the issuer of the deployment's OpenID Connect provider, or "".
func (h *Handler) issuer() string {
	if h.Provider == nil {
		return ""
	}
	return h.Provider.Issuer()
}

func person(user workspace.User) *ui.Person { return &ui.Person{Name: user.Name, Email: user.Email} }

func toSettings() ui.Link { return ui.Link{Href: home, Text: "Go to your settings"} }

// securityFrame returns the frame of a page of Settings, Security. It takes the notice for the page.
func (h *Handler) securityFrame(v *visit, title string) (ui.Frame, error) {
	notice, err := h.Sessions.TakeFlash(v.w, v.r)
	if err != nil {
		return ui.Frame{}, err
	}
	switcher, err := h.Switcher(v.r, v.current, "security")
	return ui.Frame{
		Title:    title,
		Section:  "security",
		Switcher: switcher,
		Held:     v.current.Held,
		Notice:   notice,
		Person:   person(v.current.User),
	}, err
}
