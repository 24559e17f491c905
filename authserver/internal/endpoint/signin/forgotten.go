package signin

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
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

// showForgotten serves GET /login/forgotten.
func (h *Handler) showForgotten(v *visit) error {
	page := h.forgottenPage("")
	page.Requested = v.form.Has(requested)
	return h.show(v, http.StatusOK, page)
}

func (h *Handler) forgottenPage(email string) *ui.Forgotten {
	return &ui.Forgotten{Frame: ui.Frame{Title: "Forgot your password?"}, Mails: h.Mails, Email: email}
}

// requestReset serves POST /login/forgotten.
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
	if wait := h.Attempts.Asked(v.r.Context(), from); wait > 0 {
		web.SetRateLimited(v.w.Header(), wait, session.AskedLimit(wait))
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

// showReset serves GET /login/reset. It changes nothing (F2).
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

// resetPassword serves POST /login/reset.
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
			v.r.Context(), h.Passwords, caller, chosen, h.Cost.Hash, link.Name, link.Email,
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
	return h.tell(v, &ui.Message{
		Status:  http.StatusNotFound,
		Heading: "This link does not work",
		Text:    "It was already used, has ended, or is incomplete. Your password was not changed.",
		Links:   []ui.Link{{Href: forgottenPath, Text: "Request another link"}, {Href: "/login", Text: "Sign in"}},
	})
}
