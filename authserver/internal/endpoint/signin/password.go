package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Texts of more than one page.
const (
	noPassword = "Enter your password."
	noCode     = "Enter the code that your app shows, or a recovery code."
)

// showSignIn serves GET /login: the form; ?return= is the local path that follows.
func (h *Handler) showSignIn(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), "")
	_, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	switch {
	case err != nil:
		return err
	case signedIn:
		return v.redirect(ui.LocalPath(next, home))
	}
	return h.showSignInPage(v, http.StatusOK, signInPage(next, ""))
}

func signInPage(next, email string) *ui.Login {
	return &ui.Login{Frame: ui.Frame{Title: "Sign in", Return: next}, Email: email}
}

// showSignInPage shows the form, with the name of the application that the user signs in for.
func (h *Handler) showSignInPage(v *visit, status int, page *ui.Login) error {
	page.Application = h.Application(v.r.Context(), page.Return)
	return h.show(v, status, page)
}

// refuseSignIn shows the form again with a problem.
func (h *Handler) refuseSignIn(v *visit, page *ui.Login, problem string) error {
	page.Problem = problem
	return h.showSignInPage(v, http.StatusBadRequest, page)
}

// signIn serves POST /login (email, password, return): 303 on success, else the form again (400, 429, 503).
func (h *Handler) signIn(v *visit) error {
	email, password := spelling.Pasted(v.form.Get("email")), credential.Secret(v.form.Get("password"))
	page := signInPage(ui.LocalPath(v.form.Get("return"), ""), v.form.Get("email"))
	if !workspace.PlausibleEmail(email) {
		page.EmailNote = "Enter the e-mail address of your account."
	}
	if password == "" {
		page.PasswordGap = noPassword
	}
	problem := ""
	if _, known := h.Sessions.BoundToBrowser(v.r); !known && v.form.Has(ui.ExpectsCookie) {
		problem = ui.NoCookie
	}
	if page.EmailNote != "" || page.PasswordGap != "" || problem != "" {
		return h.refuseSignIn(v, page, problem)
	}
	known := h.Sessions.Knows(v.r, email)
	user, result, err := h.Passwords.Verify(v.r.Context(), email, password, h.address(v), known)
	if page.Problem = notChecked(v, result, err); page.Problem != "" {
		// Without the application's name: a limited client must not cause a read.
		return h.show(v, http.StatusTooManyRequests, page)
	}
	if err == nil && result.OK {
		err = h.begin(v, user, result.Proof)
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid), err == nil && !result.OK:
		return h.refuseSignIn(v, page, "The e-mail address or password is incorrect.")
	case errors.Is(err, session.ErrCodeNeeded):
		return h.askCode(v, user, result.Proof, page.Return, "")
	case err != nil:
		return err
	}
	return v.redirect(ui.LocalPath(page.Return, home))
}

// begin signs a user in by a proof that was just checked. The errors are those of Sessions.Begin.
func (h *Handler) begin(v *visit, user workspace.User, proof session.Proof) error {
	return h.Sessions.Begin(v.w, v.r, user, proof, h.address(v))
}

// notChecked returns what a page says about a password that was not checked because of a limit, and sets the headers
// of the response. It returns "" if the password was checked, or err is another error.
func notChecked(v *visit, result session.Result, err error) string {
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(v.w.Header(), session.BusyFor)
		v.w.Header().Set("Almoner-Busy", "1") // waits.js sends the form again
		return "Many people are signing in right now, so your password was not checked. Please wait a few seconds " +
			"and enter it again."
	case err == nil && v.limited(result.Limit):
		return "Too many wrong passwords from your network. Please try again in " + ui.Wait(result.Limit.Reset) + "."
	}
	return ""
}

// signOut serves POST /logout (return): 303.
func (h *Handler) signOut(v *visit) error {
	if err := h.Sessions.End(v.w, v.r); err != nil {
		return err
	}
	return v.redirect(ui.LocalPath(v.form.Get("return"), "/login"))
}

// codeLife is how long a user has to enter a code after the password.
const codeLife = 10 * time.Minute

// A ticket is a checked password that waits for a code. It is sealed into the form, so that nothing is stored before
// the sign-in is complete. It authenticates no request without a code.
type ticket struct {
	User     uuid.UUID `json:"u"`
	Email    string    `json:"e"`
	Password []byte    `json:"p"` // digest of the stored hash: a password that was replaced since is refused
	Expires  time.Time `json:"x"`
}

// askCode shows the form for the code of a user whose password was correct, or was set: then notice says so.
func (h *Handler) askCode(v *visit, user workspace.User, proof session.Proof, next, notice string) error {
	digest := session.PasswordDigest(proof.PasswordHash)
	content, err := json.Marshal(ticket{user.ID, user.Email, digest, h.Now().Add(codeLife)})
	if err != nil {
		return err
	}
	page := codePage(h.tickets.Seal(content), next, user.Email)
	page.Notice = notice
	return h.show(v, http.StatusOK, page)
}

func codePage(ticket, next, email string) *ui.Code {
	return &ui.Code{Frame: ui.Frame{Title: "Enter a code", Return: next}, Ticket: ticket, Email: email}
}

// code serves POST /login/code (ticket, code, return): the second step, after a password.
func (h *Handler) code(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), "")
	t, ok := h.openTicket(v.form.Get("ticket"))
	if !ok {
		return h.startAgain(v, next, "")
	}
	page := codePage(v.form.Get("ticket"), next, t.Email)
	code := credential.Secret(v.form.Get("code"))
	if code == "" {
		page.CodeNote = noCode
		return h.show(v, http.StatusBadRequest, page)
	}
	try := h.codeTry(v, t.User, t.Email, t.Password)
	if page.CodeNote = h.codesLimited(v, try); page.CodeNote != "" {
		return h.show(v, http.StatusTooManyRequests, page)
	}
	err := h.beginWithCode(v, t, code)
	wrong := errors.Is(err, session.ErrCodeInvalid)
	if wrong {
		err = h.Attempts.WrongCode(v.r.Context(), h.Store, try)
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return h.startAgain(v, next, t.Email)
	case err != nil:
		return err
	case wrong:
		page.CodeNote = "The code is incorrect or was used already. Wait for the next code of your app, or enter " +
			"another recovery code."
		return h.show(v, http.StatusBadRequest, page)
	}
	return v.redirect(ui.LocalPath(next, home))
}

// codeTry returns a try of a code by a user whose password is correct. digest is of the password's hash.
func (h *Handler) codeTry(v *visit, user uuid.UUID, email string, digest []byte) session.CodeTry {
	return session.CodeTry{
		User:     user,
		Password: digest,
		Known:    h.Sessions.Knows(v.r, email),
		Address:  h.address(v),
		Device:   session.DeviceName(v.r.UserAgent()),
	}
}

// codesLimited counts the try. It returns what the page says if there were too many, and sets the headers of the
// response.
func (h *Handler) codesLimited(v *visit, try session.CodeTry) string {
	limit := h.Attempts.Code(v.r.Context(), try)
	if !v.limited(limit) {
		return ""
	}
	return "Too many codes were tried for your account. Please try again in " + ui.Wait(limit.Reset) + "."
}

// beginWithCode signs the user of a ticket in, or returns session.ErrProofInvalid or session.ErrCodeInvalid.
func (h *Handler) beginWithCode(v *visit, t ticket, code credential.Secret) error {
	user, hash, found, err := h.Store.UserByEmail(v.r.Context(), t.Email)
	if err != nil {
		return err
	}
	if !found || user.ID != t.User || string(session.PasswordDigest(hash)) != string(t.Password) {
		return session.ErrProofInvalid
	}
	return h.begin(v, user, session.Proof{Method: session.Password, PasswordHash: hash, Code: code})
}

func (h *Handler) openTicket(text string) (ticket, bool) {
	var t ticket
	content, err := h.tickets.Open(text)
	if err == nil {
		err = json.Unmarshal(content, &t)
	}
	return t, err == nil && h.Now().Before(t.Expires)
}

// startAgain shows the sign-in form to a user whose password must be checked again.
func (h *Handler) startAgain(v *visit, next, email string) error {
	problem := "Your sign-in took too long, or your password was changed. Please sign in again."
	return h.refuseSignIn(v, signInPage(next, email), problem)
}

// Endpoints that create credentials need an authentication within the last ten minutes (session.CurrentUser.Fresh).

// showReauth serves GET /login/again: the form with the methods that this user has.
func (h *Handler) showReauth(v *visit) error {
	page, err := h.reauthPage(v)
	if err == nil {
		page.Problem, err = h.Sessions.TakeFlash(v.w, v.r) // the message of a method that failed
	}
	if err != nil {
		return err
	}
	return h.show(v, http.StatusOK, page)
}

// reauthPage returns the page with the methods that the user has.
func (h *Handler) reauthPage(v *visit) (*ui.Reauth, error) {
	ctx, user, factor := v.r.Context(), v.current.User, v.current.SecondFactor
	page := &ui.Reauth{Frame: ui.Frame{Return: v.next}}
	page.Title, page.AsksPasskey, page.Person = "Confirm your identity", h.RelyingParty != nil, person(user)
	_, hash, _, err := h.Store.UserByID(ctx, user.ID)
	page.HasPassword, page.AsksPassword = hash != "", hash != ""
	if err == nil && page.HasPassword {
		status, failure := h.Store.Authenticator(ctx, user.ID)
		page.NeedsCode, err = status.Active, failure
	}
	if err == nil && factor.MustConfirm() && !page.NeedsCode {
		page.HasPassword, page.SecondFactor = false, true // the password alone is not enough
	}
	if err == nil && h.RelyingParty != nil {
		page.HasPasskey, err = h.Store.HasPasskey(ctx, user.ID)
	}
	if err == nil && h.Provider != nil && !factor.MustConfirm() {
		_, page.Linked, err = h.Store.IdentitySince(ctx, user.ID, h.issuer)
	}
	return page, err
}

// confirm serves POST /login/again (password, code, return): 303 on success, else the form again (400, 429, 503).
func (h *Handler) confirm(v *visit) error {
	page, err := h.reauthPage(v)
	if err != nil {
		return err
	}
	password, code := credential.Secret(v.form.Get("password")), credential.Secret(v.form.Get("code"))
	switch {
	case password == "":
		page.PasswordGap = noPassword
		return h.show(v, http.StatusBadRequest, page)
	case page.NeedsCode && code == "":
		page.CodeNote = noCode
		return h.show(v, http.StatusBadRequest, page)
	}
	user := v.current.User
	found, result, err := h.Passwords.Verify(v.r.Context(), user.Email, password, h.address(v), true)
	if page.Problem = notChecked(v, result, err); page.Problem != "" {
		return h.show(v, http.StatusTooManyRequests, page)
	}
	if err != nil {
		return err
	}
	if !result.OK || found.ID != user.ID {
		return h.wrongPassword(v, page)
	}
	try := h.codeTry(v, user.ID, user.Email, session.PasswordDigest(result.Proof.PasswordHash))
	if page.NeedsCode {
		if page.CodeNote = h.codesLimited(v, try); page.CodeNote != "" {
			return h.show(v, http.StatusTooManyRequests, page)
		}
	}
	result.Proof.Code = code
	err = h.Sessions.Reauthenticated(v.w, v.r, v.current, result.Proof, h.address(v))
	wrongCode := errors.Is(err, session.ErrCodeInvalid)
	if wrongCode {
		err = h.Attempts.WrongCode(v.r.Context(), h.Store, try)
	}
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return h.wrongPassword(v, page)
	case wrongCode && err == nil, errors.Is(err, session.ErrCodeNeeded):
		page.NeedsCode, page.CodeNote = true, "The code is incorrect or was used already. Wait for the next one."
		return h.show(v, http.StatusBadRequest, page)
	case err != nil:
		return err
	}
	return v.redirect(v.next)
}

func (h *Handler) wrongPassword(v *visit, page *ui.Reauth) error {
	page.PasswordGap = "The password is incorrect."
	return h.show(v, http.StatusBadRequest, page)
}
