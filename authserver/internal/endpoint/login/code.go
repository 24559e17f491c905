package login

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

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

// askCode shows the form for the code of a user whose password was correct.
func (h *Handler) askCode(
	w http.ResponseWriter,
	r *http.Request,
	user workspace.User,
	proof session.Proof,
	next string,
) {
	digest := session.PasswordDigest(proof.PasswordHash)
	content, err := json.Marshal(ticket{user.ID, user.Email, digest, h.Now().Add(codeLife)})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	page := &ui.SignInCode{
		Frame:  ui.Frame{Title: "Enter a code"},
		Ticket: h.tickets.Seal(content),
		Return: next,
		Email:  user.Email,
	}
	h.Pages.Show(w, r, http.StatusOK, page)
}

// Code serves POST /login/code. It accepts requests from the server's own origin only.
func (h *Handler) Code() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.code)) }

func (h *Handler) code(w http.ResponseWriter, r *http.Request) {
	if !h.readForm(w, r) {
		return
	}
	next := ui.LocalPath(r.PostForm.Get("return"), "")
	t, ok := h.openTicket(r.PostForm.Get("ticket"))
	if !ok {
		h.startAgain(w, r, next, "")
		return
	}
	page := &ui.SignInCode{
		Frame:  ui.Frame{Title: "Enter a code"},
		Ticket: r.PostForm.Get("ticket"),
		Return: next,
		Email:  t.Email,
	}
	code := credential.Secret(r.PostForm.Get("code"))
	if code == "" {
		page.CodeNote = "Enter the code that your app shows, or a recovery code."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return
	}
	try := session.CodeTry{
		User:     t.User,
		Password: t.Password,
		Known:    h.Devices.Knows(r, t.Email),
		Address:  h.Proxies.ClientAddress(r),
		Device:   session.DeviceName(r.UserAgent()),
	}
	if wait, limit := h.Attempts.Code(r.Context(), try); wait > 0 {
		web.SetRateLimited(w.Header(), wait, limit)
		page.CodeNote = "Too many codes were tried for your account. Please try again in " + ui.Wait(wait) + "."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
		return
	}
	err := h.beginWithCode(w, r, t, code)
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		h.startAgain(w, r, next, t.Email)
	case errors.Is(err, session.ErrCodeInvalid):
		h.wrongCode(w, r, try, page)
	case err != nil:
		h.fail(w, r, err)
	default:
		goOn(w, ui.LocalPath(next, home))
	}
}

// beginWithCode signs the user of a ticket in, or returns session.ErrProofInvalid or session.ErrCodeInvalid.
func (h *Handler) beginWithCode(w http.ResponseWriter, r *http.Request, t ticket, code credential.Secret) error {
	user, hash, found, err := h.Users.UserByEmail(r.Context(), t.Email)
	if err != nil {
		return err
	}
	if !found || user.ID != t.User || string(session.PasswordDigest(hash)) != string(t.Password) {
		return session.ErrProofInvalid
	}
	proof := session.Proof{
		Method:       session.Password,
		PasswordHash: hash,
		Code:         code,
	}
	by, event := session.Arrival(r, user, proof, h.Proxies.ClientAddress(r))
	return h.Sessions.Begin(w, r, by, event)
}

func (h *Handler) openTicket(text string) (ticket, bool) {
	content, err := h.tickets.Open(text)
	if err != nil {
		return ticket{}, false
	}
	var t ticket
	if err := json.Unmarshal(content, &t); err != nil {
		return ticket{}, false
	}
	return t, h.Now().Before(t.Expires)
}

func (h *Handler) wrongCode(w http.ResponseWriter, r *http.Request, try session.CodeTry, page *ui.SignInCode) {
	if err := h.Attempts.WrongCode(r.Context(), h.Codes, try); err != nil {
		h.fail(w, r, err)
		return
	}
	page.CodeNote = "The code is incorrect or was used already. Wait for the next code of your app, or enter another " +
		"recovery code."
	h.Pages.Show(w, r, http.StatusBadRequest, page)
}

// startAgain shows the sign-in form to a user whose password must be checked again.
func (h *Handler) startAgain(w http.ResponseWriter, r *http.Request, next, email string) {
	page := form(next, email)
	page.Problem = "Your sign-in took too long, or your password was changed. Please sign in again."
	h.show(w, r, http.StatusBadRequest, page)
}
