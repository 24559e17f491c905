package signin

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// The pages on which a person who forgot the password sets a new one have these invariants:
//
//	F1 The response to a request for a link, and the work before it, do not depend on whether the address has an
//	   account: the request queues a message, and the worker of the queue looks the address up.
//	F2 A GET changes nothing: programs that follow the links in mails do not use a link up.
//	F3 A link works once and for 30 minutes. Of two concurrent uses one wins.
//	F4 A new password ends every sign-in of the user and every other link.
//	F5 If a workspace of the user requires a second factor, a link by mail removes no passkey: access to the mailbox
//	   alone does not replace the second factor. A link of an operator may remove passkeys.
//	F6 A new password ends the user's personal access tokens and grants in its transaction, except those that the page
//	   listed and the user kept.
//	F7 If the address was never proven, a new password first ends all that the account had (useraccount.Takeover), and
//	   proves it. A second factor does not prevent that, even if a workspace requires one, because another person may
//	   have added it.
//	F8 A new password signs the user in, as it would on the sign-in page: an authenticator app is still asked for a
//	   code.

const requested = "requested"

// showForgotten serves GET /login/forgotten: the form; ?requested after it was sent.
func (h *Handler) showForgotten(v *visit) error {
	page := h.forgottenPage("")
	page.Requested = v.form.Has(requested)
	return h.show(v, http.StatusOK, page)
}

func (h *Handler) forgottenPage(email string) *ui.Forgotten {
	frame := ui.Frame{Title: "Forgot your password?", Script: true}
	return &ui.Forgotten{Frame: frame, Mails: h.Members.Mailed(), Email: email}
}

// requestReset serves POST /login/forgotten (email): 303 to ?requested, else the form again (400, 429, 503).
func (h *Handler) requestReset(v *visit) error {
	page := h.forgottenPage(v.form.Get("email"))
	if !h.Members.Mailed() {
		return h.show(v, http.StatusOK, page)
	}
	email := spelling.Pasted(v.form.Get("email"))
	if !workspace.PlausibleEmail(email) {
		page.EmailNote = "Enter the e-mail address of your account."
		return h.show(v, http.StatusBadRequest, page)
	}
	from := h.address(v)
	if v.limited(h.Attempts.Asked(v.r.Context(), from)) {
		page.Problem = "Too many links were requested from your network. Please try again later."
		return h.show(v, http.StatusTooManyRequests, page)
	}
	token, err := password.NewToken(h.Random)
	if err == nil {
		err = h.Store.QueueMail(v.r.Context(), mail.Message{
			Kind:    mail.Reset,
			Address: email,
			Token:   token,
			Data:    mail.Data{Network: from.String()},
			Expires: h.Now().Add(mail.ResetLife),
		})
	}
	if err != nil {
		return err
	}
	return v.redirect("/login/forgotten?" + requested + "=1")
}

// showReset serves GET /login/reset (token): the form for the new password, or a page that says that the link has
// ended. It changes nothing (F2).
func (h *Handler) showReset(v *visit) error {
	_, page, err := h.resetPage(v)
	if err != nil {
		return err
	}
	return h.show(v, http.StatusOK, page)
}

// resetPage returns the link of the token in the form, and its page with the user's personal access tokens and
// connections.
func (h *Handler) resetPage(v *visit) (password.Link, *ui.NewPassword, error) {
	ctx, token := v.r.Context(), credential.Secret(v.form.Get("token"))
	link, err := h.Store.ResetLink(ctx, password.HashToken(token))
	if err != nil {
		return link, nil, err
	}
	current, signedIn, err := h.Sessions.CurrentUser(ctx)
	if err != nil {
		return link, nil, err
	}
	page := &ui.NewPassword{
		Frame:     ui.Frame{Title: "Set a new password", Script: true},
		Email:     link.Email,
		Token:     token.Reveal(),
		Others:    link.Removable() && !link.TakesOver,
		Stay:      link.PasskeysStay && !link.TakesOver,
		TakesOver: link.TakesOver,
	}
	if signedIn && current.User.ID != link.UserID {
		page.Ends = person(current.User)
	}
	tokens, err := h.Store.ActiveTokens(ctx, link.UserID)
	if err != nil {
		return link, nil, err
	}
	for _, t := range tokens {
		page.Credentials = append(page.Credentials, ui.EndingCredential{
			ID:        t.ID.String(),
			Name:      t.Name,
			Workspace: t.Workspace,
			Kind:      "Personal access token",
			LastUsed:  t.LastUsed,
		})
	}
	connections, err := h.Store.ConnectedApps(ctx, link.UserID)
	for _, c := range connections {
		if !c.Live(h.Now()) {
			continue
		}
		page.Credentials = append(page.Credentials, ui.EndingCredential{
			ID:        c.Grant.ID.String(),
			Name:      c.Application,
			Workspace: c.Workspace,
			Kind:      "Connected app",
			LastUsed:  c.Grant.LastUsed,
		})
	}
	if n := len(page.Credentials) - maxListed; n > 0 { // the form has at most 64 KiB
		page.Credentials, page.More = page.Credentials[:maxListed], n
	}
	return link, page, err
}

// maxListed is the maximum number of tokens and connections that the page lists. Others end.
const maxListed = 300

// kept returns the tokens and grants that the page listed and the user does not want to end (F6).
func kept(form url.Values) (keep []uuid.UUID) {
	for listed := range strings.FieldsSeq(form.Get("listed")) {
		if id, err := web.ParseID(listed); err == nil && form.Get("end-"+listed) == "" {
			keep = append(keep, id)
		}
	}
	return keep
}

// resetPassword serves POST /login/reset (token, new-password, remove, listed, end-…): it signs the user in, or asks
// for a code first; else the form again (400, 404, 429, 503).
func (h *Handler) resetPassword(v *visit) error {
	ctx := v.r.Context()
	link, page, err := h.resetPage(v) // before the password is hashed, which is costly
	if err != nil {
		return err
	}
	page.RemoveOthers = v.form.Get("remove") != ""
	keep := kept(v.form)
	for i, c := range page.Credentials {
		page.Credentials[i].Keep = slices.ContainsFunc(keep, func(id uuid.UUID) bool { return id.String() == c.ID })
	}
	chosen, from := credential.Secret(v.form.Get("new-password")), h.address(v)
	var hash credential.Secret
	if page.PasswordNote = password.CheckForm(chosen); page.PasswordNote == "" {
		caller := session.Caller{Email: link.Email, Address: from, Known: true}
		hash, page.PasswordNote, err = password.Choose(ctx, h.Passwords, caller, chosen, link.Name, link.Email)
	}
	if page.PasswordNote != "" {
		return h.show(v, http.StatusBadRequest, page)
	}
	if page.Problem = notChecked(v, session.Result{}, err); page.Problem != "" {
		return h.show(v, http.StatusTooManyRequests, page)
	}
	if err != nil {
		return err
	}
	ended, err := h.Store.ResetPassword(ctx, password.Reset{
		TokenHash:    password.HashToken(credential.Secret(page.Token)),
		Hash:         hash,
		RemoveOthers: page.RemoveOthers,
		Keep:         keep,
		Device:       session.DeviceName(v.r.UserAgent()),
		Address:      from.String(),
	}, h.event(v, audit.UserPasswordReset, "", map[string]any{"others_removed": page.RemoveOthers && link.Removable()}))
	if err != nil {
		return err
	}
	for _, g := range ended {
		h.PropagateRevocation(ctx, g.ID, g.Ends, grant.ByUser)
	}
	user := workspace.User{ID: link.UserID, Name: link.Name, Email: link.Email}
	proof := session.Proof{Method: session.Password, PasswordHash: hash}
	const notice = "Your new password is set, and all other browsers were signed out."
	err = h.begin(v, user, proof)
	if errors.Is(err, session.ErrCodeNeeded) {
		return h.askCode(v, user, proof, "", notice)
	}
	if err == nil {
		err = h.done(v, home, notice)
	}
	if err != nil { // the password is set, whatever happened since
		h.Log.ErrorContext(ctx, "no sign-in after a new password", "error", err)
		return v.redirect("/login?" + ui.PasswordSet + "=1")
	}
	return nil
}

// showEmailChange serves GET /email (token): the page of a link that confirms or stops a change of an e-mail address.
// It needs no sign-in. A link proves only that the user can read its mailbox.
func (h *Handler) showEmailChange(v *visit) error {
	token := credential.Secret(v.form.Get("token"))
	change, err := h.Accounts.EmailChangeLink(v.r.Context(), token)
	if err != nil {
		return err
	}
	return h.show(v, http.StatusOK, &ui.EmailChange{
		Frame:     ui.Frame{Title: "Change of an e-mail address"},
		Token:     token.Reveal(),
		Email:     change.New,
		ToNew:     change.ToNew,
		Confirmed: change.Confirmed(),
	})
}

// answerEmailChange serves POST /email (token, decision: confirm or stop): 200, 400, 404, 409, 503.
func (h *Handler) answerEmailChange(v *visit) error {
	ctx, token := v.r.Context(), credential.Secret(v.form.Get("token"))
	switch v.form.Get("decision") {
	case "confirm":
		event := h.event(v, audit.UserEmailChanged, "", nil)
		change, changed, err := h.Accounts.ConfirmEmailChange(ctx, token, event)
		if err != nil {
			return err
		}
		name := "email_confirmed_by_" + mailbox(change)
		if changed {
			name = "email_changed" // it was the last confirmation
		}
		return h.showMessage(v, h.message(v, name, "{new}", change.New))
	case "stop":
		change, err := h.Accounts.EmailChangeLink(ctx, token)
		if err == nil {
			event := h.event(v, audit.UserEmailStopped, "", nil)
			err = h.Accounts.StopEmailChange(ctx, token, event)
		}
		if err != nil {
			return err
		}
		return h.tell(v, "email_stopped_by_"+mailbox(change))
	}
	return h.tell(v, "email_form_invalid")
}

// mailbox returns which address the link of a change was sent to.
func mailbox(change useraccount.EmailChange) string {
	if change.ToNew {
		return "new"
	}
	return "current"
}

// askForAccess serves POST /access-requests (ticket): the button "Ask an administrator" of pages that say which access
// a user lacks. Its ticket contains the requested access and the workspace (account/membership).
func (h *Handler) askForAccess(v *visit) error {
	current, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	if err != nil {
		return err
	}
	q, err := h.Offers.Open(v.form.Get("ticket"), current.SignInID, h.Now())
	if !signedIn || err != nil {
		return h.tell(v, "access_request_outdated")
	}
	event := current.Event(v.r.Context(), audit.AccessRequested, "user:"+current.User.ID.String())
	event.WorkspaceID = &q.WorkspaceID
	event.Detail = map[string]any{
		"permissions":      q.Permissions.Strings(),
		"llm_integration":  q.LLMIntegration,
		"connector_policy": q.Policy,
	}
	outcome, err := h.Store.SendAccessRequest(v.r.Context(), q, event)
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		return h.tell(v, "access_request_outdated")
	case err != nil:
		return err
	}
	m := h.message(v, "access_"+strings.ReplaceAll(string(outcome), " ", "_"))
	if outcome == membership.RequesterUnproven {
		m = ui.Unproven("You cannot ask for access before that. No e-mail was sent.", true)
	}
	m.Person = person(current.User)
	if len(q.Back) > 0 {
		m.Links = append(m.Links, ui.Link{Href: string(q.Back), Text: "Back"})
	}
	return h.showMessage(v, m)
}
