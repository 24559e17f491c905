package signin

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Endpoints that create credentials need an authentication within the last ten minutes (session.CurrentUser.Fresh).

// showReauth serves GET /login/again.
func (h *Handler) showReauth(v *visit) error {
	if err := h.requireUser(v, ui.LocalPath(v.form.Get("return"), home)); err != nil {
		return err
	}
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
	page := &ui.Reauth{Return: v.next}
	page.Title, page.AsksPasskey, page.Person = "Confirm your identity", h.RelyingParty != nil, person(user)
	_, hash, _, err := h.Store.UserByID(ctx, user.ID)
	page.HasPassword = hash != ""
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
		page.Linked, err = h.Store.HasIdentity(ctx, user.ID, h.issuer())
	}
	return page, err
}

// confirm serves POST /login/again.
func (h *Handler) confirm(v *visit) error {
	if err := h.requireUser(v, ui.LocalPath(v.form.Get("return"), home)); err != nil {
		return err
	}
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
	user, result, err := h.verifier.Verify(v.r.Context(), v.current.User.Email, password, h.address(v), true)
	if page.Problem = notChecked(v, result, err); page.Problem != "" {
		return h.show(v, http.StatusTooManyRequests, page)
	}
	if err != nil {
		return err
	}
	if !result.OK || user.ID != v.current.User.ID {
		return h.wrongPassword(v, page)
	}
	result.Proof.Code = code
	return h.confirmPassword(v, result.Proof, page)
}

func (h *Handler) wrongPassword(v *visit, page *ui.Reauth) error {
	page.PasswordGap = "The password is incorrect."
	return h.show(v, http.StatusBadRequest, page)
}

// confirmPassword continues after the right password: it counts the code as a try.
func (h *Handler) confirmPassword(v *visit, proof session.Proof, page *ui.Reauth) error {
	user := v.current.User
	try := h.codeTry(v, user.ID, user.Email, session.PasswordDigest(proof.PasswordHash))
	if page.NeedsCode {
		if page.CodeNote = h.codesLimited(v, try); page.CodeNote != "" {
			return h.show(v, http.StatusTooManyRequests, page)
		}
	}
	err := h.reauthenticated(v, proof)
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

// reauthenticated records that the current user has authenticated again. The errors are those of
// Sessions.Reauthenticated.
func (h *Handler) reauthenticated(v *visit, proof session.Proof) error {
	event := v.current.Event(v.r.Context(), audit.SignInProved, "sign_in:"+v.current.SignInID.String())
	event.Detail = map[string]any{"method": proof.Method, "address": h.address(v).String()}
	if proof.Issuer != "" {
		event.Detail["issuer"] = proof.Issuer
	}
	return h.Sessions.Reauthenticated(v.w, v.r, v.current, proof, event)
}
