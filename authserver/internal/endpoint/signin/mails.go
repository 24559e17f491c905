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
	"github.com/almonerhq/almoner/shared/contract/identity"
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

const (
	forgottenPath = "/login/forgotten"
	requested     = "requested"
)

// showForgotten serves GET /login/forgotten: the form; ?requested after it was sent.
func (h *Handler) showForgotten(v *visit) error {
	page := h.forgottenPage("")
	page.Requested = v.form.Has(requested)
	return h.show(v, http.StatusOK, page)
}

func (h *Handler) forgottenPage(email string) *ui.Forgotten {
	return &ui.Forgotten{Frame: ui.Frame{Title: "Forgot your password?"}, Mails: h.Mails, Email: email}
}

// requestReset serves POST /login/forgotten (email): 303 to ?requested, else the form again (400, 429, 503).
func (h *Handler) requestReset(v *visit) error {
	page := h.forgottenPage(v.form.Get("email"))
	if !h.Mails {
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
	return v.redirect(forgottenPath + "?" + requested + "=1")
}

// showReset serves GET /login/reset (token): the form for the new password, or a page that says that the link has
// ended. It changes nothing (F2).
func (h *Handler) showReset(v *visit) error {
	_, page, err := h.resetPage(v)
	if err != nil {
		return h.refuseReset(v, err)
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
	page := &ui.NewPassword{
		Frame:     ui.Frame{Title: "Set a new password"},
		Email:     link.Email,
		Token:     token.Reveal(),
		Others:    link.Removable() && !link.TakesOver,
		Stay:      link.PasskeysStay && !link.TakesOver,
		TakesOver: link.TakesOver,
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
		if id, err := identity.Parse(listed); err == nil && form.Get("end-"+listed) == "" {
			keep = append(keep, id)
		}
	}
	return keep
}

// resetPassword serves POST /login/reset (token, new-password, remove, listed, end-…): 303 to the sign-in page, else
// the form again (400, 404, 429, 503).
func (h *Handler) resetPassword(v *visit) error {
	link, page, err := h.resetPage(v) // before the password is hashed, which is costly
	if err != nil {
		return h.refuseReset(v, err)
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
		hash, page.PasswordNote, err = password.Choose(
			v.r.Context(), h.Passwords, caller, chosen, link.Name, link.Email,
		)
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
	ended, err := h.Store.ResetPassword(v.r.Context(), password.Reset{
		TokenHash:    password.HashToken(credential.Secret(page.Token)),
		Hash:         hash,
		RemoveOthers: page.RemoveOthers,
		Keep:         keep,
		Device:       session.DeviceName(v.r.UserAgent()),
		Address:      from.String(),
	}, audit.Event{
		Action:    audit.UserPasswordReset,
		RequestID: web.RequestID(v.r.Context()),
		Detail: map[string]any{
			"address":        from.String(),
			"others_removed": page.RemoveOthers && link.Removable(),
		},
	})
	if err != nil {
		return h.refuseReset(v, err)
	}
	for _, g := range ended {
		h.PropagateRevocation(v.r.Context(), g.ID, g.Ends, grant.ByUser)
	}
	return v.redirect("/login?" + ui.PasswordSet + "=1")
}

// refuseReset shows the page of a link that is not valid. It returns other errors.
func (h *Handler) refuseReset(v *visit, err error) error {
	if !errors.Is(err, password.ErrLinkInvalid) {
		return err
	}
	return h.tell(v, message(http.StatusNotFound, "This link does not work",
		"It was already used, has ended, or is incomplete. Your password was not changed.", "",
		ui.Link{Href: forgottenPath, Text: "Request another link"}, ui.Link{Href: "/login", Text: "Sign in"}))
}

// showEmailChange serves GET /email (token): the page of a link that confirms or stops a change of an e-mail address.
// It needs no sign-in. A link proves only that the user can read its mailbox.
func (h *Handler) showEmailChange(v *visit) error {
	token := credential.Secret(v.form.Get("token"))
	change, err := h.Accounts.EmailChangeLink(v.r.Context(), token)
	if err != nil {
		return h.refuseEmailChange(v, err)
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
	event := audit.Event{
		Actor:     "anonymous",
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": h.address(v).String()},
	}
	switch v.form.Get("decision") {
	case "confirm":
		event.Action = audit.UserEmailChanged
		change, changed, err := h.Accounts.ConfirmEmailChange(ctx, token, event)
		if err != nil {
			return h.refuseEmailChange(v, err)
		}
		return h.tell(v, emailConfirmedPage(change, changed))
	case "stop":
		event.Action = audit.UserEmailStopped
		change, err := h.Accounts.EmailChangeLink(ctx, token)
		if err == nil {
			err = h.Accounts.StopEmailChange(ctx, token, event)
		}
		if err != nil {
			return h.refuseEmailChange(v, err)
		}
		return h.tell(v, emailStoppedPage(change))
	}
	return h.tell(v, message(http.StatusBadRequest, "The form is not valid",
		"The submitted form cannot be read. Nothing was changed.", "Open the link in the mail again."))
}

// emailConfirmedPage returns the page after a link was used. changed reports whether it was the last one.
func emailConfirmedPage(change useraccount.EmailChange, changed bool) *ui.Message {
	switch {
	case changed:
		return message(http.StatusOK, "The address was changed",
			"You now sign in with "+change.New+".", "", toSettings())
	case change.ToNew:
		return message(http.StatusOK, "This address is confirmed",
			"Now open the link that we sent to your current address. Your address changes after that.", "")
	}
	return message(http.StatusOK, "The change is confirmed",
		"Now open the link that we sent to "+change.New+". Your address changes after that.", "")
}

// emailStoppedPage returns the page after a change was stopped.
func emailStoppedPage(change useraccount.EmailChange) *ui.Message {
	page := message(http.StatusOK, "The change was stopped",
		"The address stays as it is, and the links no longer work.", "")
	if !change.ToNew {
		page.Next = "If another person requested the change, they were signed in to your account. Set a new " +
			"password to sign out all browsers."
		page.Links = []ui.Link{{Href: forgottenPath, Text: "Set a new password"}}
	}
	return page
}

// refuseEmailChange shows the page of a link that is not valid, or of an address that is taken. It returns other
// errors.
func (h *Handler) refuseEmailChange(v *visit, err error) error {
	switch {
	case errors.Is(err, useraccount.ErrEmailTaken):
		return h.tell(v, message(http.StatusConflict, "The address was not changed",
			"There is another account with the new address.",
			"Delete that account or change its address, and request the change again.", toSettings()))
	case errors.Is(err, useraccount.ErrLinkInvalid):
		return h.tell(v, message(http.StatusNotFound, "This link does not work",
			"The link was used already, has expired or is incomplete, or the change was stopped. Nothing was changed.",
			"", toSettings()))
	}
	return err
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
		return h.tell(v, accessRequestOutdated())
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
		return h.tell(v, accessRequestOutdated())
	case err != nil:
		return err
	}
	m := accessRequestPage(outcome)
	m.Person = person(current.User)
	if len(q.Back) > 0 {
		m.Links = append(m.Links, ui.Link{Href: string(q.Back), Text: "Back"})
	}
	return h.tell(v, m)
}

// accessRequestPage returns the page of an outcome.
func accessRequestPage(outcome membership.Outcome) *ui.Message {
	switch outcome {
	case membership.RequestSent:
		return message(http.StatusOK, "We asked the administrators",
			"They got an e-mail with your name, your address and what you need.",
			"An administrator decides. You can ask again after 24 hours.")
	case membership.RequestSentBefore:
		return message(http.StatusOK, "You have already asked",
			"You asked the administrators of this workspace less than 24 hours ago. No other e-mail was sent.",
			"You can ask again a day after your last request.")
	case membership.TooManyRequests:
		return message(http.StatusTooManyRequests, "Too many people have asked today",
			"Too many people who are not members asked the administrators of this workspace. No e-mail was sent.",
			"Try again tomorrow, or ask a person in the workspace.")
	case membership.AccessGiven:
		return message(http.StatusOK, "You have this access now",
			"It was given to you while the page was open. No e-mail was sent.", "")
	case membership.RequesterUnproven:
		return ui.Unproven("You cannot ask for access before that. No e-mail was sent.", true)
	case membership.NoMail:
		return message(http.StatusOK, "No e-mail was sent", "This deployment sends no e-mail.",
			"Ask an administrator of the workspace yourself.")
	}
	return message(http.StatusOK, "No administrator can be asked",
		"No other member of this workspace can give you this access by e-mail. No e-mail was sent.",
		"Ask a person in the workspace, or the person who runs this service.")
}

// accessRequestOutdated returns the page for a form of another session, or one that is too old.
func accessRequestOutdated() *ui.Message {
	return message(http.StatusForbidden, "This form is out of date",
		"It was opened in another session or more than a day ago. No e-mail was sent.",
		"Go back to the page, reload it and ask again.", toSettings())
}
